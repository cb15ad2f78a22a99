#!lua flags=allow-oom
-- Takes a lock, or keeps it for longer.
--
-- KEYS[1]  the lock
-- ARGV[1]  who asks
-- ARGV[2]  for how many milliseconds
-- Answers  1 if who asks has it now, 0 if another one has
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
