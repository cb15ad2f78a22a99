#!lua flags=allow-oom
-- Changes the settings of a queue.
--
-- KEYS[1]  the queue's hash
-- ARGV[1]  the time of a test, or nothing
-- ARGV[2]  the version of the definitions
-- ARGV[3]  whether the setting fifo changes: 1 or nothing
-- ARGV[4]  packed: the queue for its events, if it has any, as create_queue.lua takes it; or nothing
-- ARGV[5…] fields of the queue, name and value
-- Answers  ok; fifo if that cannot be changed now; or taken as create_queue.lua
-- uses: runs queue reader letters
local q, refusal = begin()
if not q then
  return refusal
end
if ARGV[3] ~= '' and q.next > q.first then
  return {'fifo'}
end
if ARGV[4] ~= '' and not make_events(q.key .. '-events', cmsgpack.unpack(ARGV[4]), q.now) then
  return {'taken'}
end
redis.call('HSET', q.key, unpack(ARGV, 5))
tell(q)
save()
return {'ok'}
