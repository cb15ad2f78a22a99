#!lua flags=allow-oom
-- Counts a request in this second of each limit, up to the first that it is too many for.
--
-- KEYS[1]  a hash: the second, and how many requests it has had by name; emptied with each second
-- ARGV[1]  the time of a test in microseconds, or nothing
-- ARGV[2]  a name, and so on in turn
-- ARGV[3]  how many of them a second takes
-- Answers  which limit it was, from 1 on; 0 if none
local second = ARGV[1] == '' and redis.call('TIME')[1]
  or string.format('%.0f', math.floor(tonumber(ARGV[1]) / 1000000))
if redis.call('HGET', KEYS[1], '') ~= second then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], '', second)
end
for at = 2, #ARGV, 2 do
  if redis.call('HINCRBY', KEYS[1], ARGV[at], 1) > tonumber(ARGV[at + 1]) then
    return at / 2
  end
end
return 0
