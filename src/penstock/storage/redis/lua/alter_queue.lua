#!lua
-- Changes the settings of a queue.
--
-- KEYS[1]  the queue's hash
-- ARGV[1]  the time of a test, or nothing
-- ARGV[2]  the version of the definitions
-- ARGV[3]  whether the setting fifo changes: 1 or nothing
-- ARGV[4…] fields of the queue, name and value
-- Answers  ok; or fifo if that cannot be changed now
-- uses: runs queue
local q, refusal = begin()
if not q then
  return refusal
end
if ARGV[3] ~= '' and q.next > q.first then
  return {'fifo'}
end
redis.call('HSET', q.key, unpack(ARGV, 4))
tell(q)
save()
return {'ok'}
