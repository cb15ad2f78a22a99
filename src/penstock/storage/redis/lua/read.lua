#!lua flags=no-writes
-- Reads messages by index. No subscription is affected.
--
-- KEYS[1]  the queue's hash; reads its :stream
-- ARGV[1]  not used
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  the first index
-- ARGV[4]  how many at most
-- Returns  ok, entries
local found = redis.call('HMGET', KEYS[1], 'version', 'first', 'next')
if not found[1] then
  return {'gone'}
end
if found[1] ~= ARGV[2] then
  return {'stale'}
end
local start = math.max(tonumber(ARGV[3]), tonumber(found[2]))
local stop = math.min(start + tonumber(ARGV[4]), tonumber(found[3]))
if start >= stop then
  return {'ok', {}}
end
return {'ok', redis.call('XRANGE', KEYS[1] .. ':stream', string.format('%.0f', start),
  string.format('%.0f', stop - 1))}
