#!lua flags=allow-oom
-- Changes the settings of a queue.
--
-- KEYS[1]  the queue's hash
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  1 if the setting `fifo` changes, or empty
-- ARGV[4]  packed: the events queue as in create_queue.lua, which is made unless it exists; or empty
-- ARGV[5…] fields of the queue: name and value in turn
-- Returns  ok; fifo if that cannot change because there are messages; taken as in create_queue.lua
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
if tonumber(redis.call('HGET', q.key, 'ttl')) ~= q.ttl then
  -- What had no time left, in flight or dead, may have some now.
  put(q, 'ttl_checked', 0)
end
tell(q)
save()
return {'ok'}
