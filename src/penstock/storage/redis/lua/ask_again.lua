#!lua flags=allow-oom
-- Delivers the message at an index once more. If it is leased, that lease ends.
--
-- KEYS[1]  the queue's hash; as in receive.lua
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  the subscription
-- ARGV[4]  the consumer in the consumer group
-- ARGV[5]  the index
-- Returns  as receive.lua; or missing; paused; unknown if the subscription has not reached it; or
--          busy and the number of messages in flight
-- uses: runs queue reader letters time delivery
local q, refusal = begin()
if not q then
  return refusal
end
local s = load_reader(q, ARGV[3])
local index = tonumber(ARGV[5])
if not holds(q, index) or s.filtered and not runs_has(s.key .. ':matched', index) then
  return {'missing'}
end
settle_what_is_due(q, s)
local function answer(found)
  finish()
  return found
end
if s.paused ~= '' then
  return answer({'paused'})
end
local leased = is_leased(s, index)
if not (leased or was_tried(s, index) or is_within_reach(q, s, index)) then
  return answer({'unknown'})
end
if leased then
  end_lease(q, s, index)
elseif leased_count(s) >= s.max_in_flight then
  return answer({'busy', leased_count(s)})
end
redis.call('ZREM', s.key .. ':waiting', text(index))
local run = {index, index + 1, lane = lane_of((special_of(q, index)))}
return answer(deliver(q, s, ARGV[4], {run}, s.lease))
