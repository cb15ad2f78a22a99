#!lua flags=allow-oom
-- Counts a request against one or more limits per second, up to the first that it exceeds.
--
-- KEYS[1]  a hash: the current second, and by name the number of requests in it; emptied when the
--          second changes
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the name of a limit
-- ARGV[3]  the requests per second that it allows; more pairs of name and number may follow
-- Returns  the position of the limit that was exceeded, from 1 on; 0 if none was
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
