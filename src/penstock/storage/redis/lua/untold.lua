#!lua flags=no-writes
-- What happened to the messages of a queue and is not in its events queue yet.
--
-- KEYS[1]  the hash of the events queue; reads :untold of the queue whose events it holds
-- ARGV[1]  how many entries at most
-- Returns  how many entries were told before, and the oldest entries that were not
local found = redis.call('HMGET', KEYS[1], 'version', 'observed', 'told')
if not found[1] or not found[2] then
  return {'0', {}}
end
local queue = string.sub(KEYS[1], 1, -#'-events' - 1)
return {found[3] or '0', redis.call('LRANGE', queue .. ':untold', 0, ARGV[1] - 1)}
