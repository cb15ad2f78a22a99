#!lua flags=allow-oom
-- Releases a lock, if its owner still holds it.
--
-- KEYS[1]  the lock
-- ARGV[1]  the owner
-- Returns  1 if it was released, 0 if the owner did not hold it
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
