#!lua flags=allow-oom
-- Acquires a lock, or renews it.
--
-- KEYS[1]  the lock
-- ARGV[1]  the owner
-- ARGV[2]  milliseconds until it expires
-- Returns  1 if the owner holds it now, 0 if another one does
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
