#!lua flags=allow-oom
-- Gives a lock back, unless another one has it by now.
--
-- KEYS[1]  the lock
-- ARGV[1]  who had it
-- Answers  1 if it is free now, 0 if not
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
