#!lua flags=allow-oom
-- Delivers one particular message once more. Its former lease ends.
--
-- KEYS[1]  the queue's hash; as receive.lua
-- ARGV[1]  the time of a test, or nothing
-- ARGV[2]  the version of the definitions
-- ARGV[3]  the subscription
-- ARGV[4]  the consumer, for the consumer group
-- ARGV[5]  the index
-- Answers  as receive.lua; or missing, paused, unknown, or busy and how many are in flight
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
