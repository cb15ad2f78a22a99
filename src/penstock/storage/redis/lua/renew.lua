#!lua flags=allow-oom
-- Renews a lock, if its owner still holds it.
--
-- KEYS[1]  the lock
-- ARGV[1]  the owner
-- ARGV[2]  milliseconds until it expires
-- Returns  1 if it was renewed, 0 if the owner did not hold it
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
