#!lua flags=no-writes
-- What happened to the messages of a queue and is not yet told in its events queue.
--
-- KEYS[1]  the hash of the events queue; reads :untold of the queue that it is of
-- ARGV[1]  how many entries at most
-- Answers  how many entries were told before, and the oldest ones that were not
local found = redis.call('HMGET', KEYS[1], 'observed', 'told')
if not found[1] then
  return {'0', {}}
end
local queue = string.sub(KEYS[1], 1, -#'-events' - 1)
return {found[2] or '0', redis.call('LRANGE', queue .. ':untold', 0, ARGV[1] - 1)}
