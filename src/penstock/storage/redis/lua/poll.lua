#!lua flags=allow-oom
-- Leases the messages of an index range that were not polled before:
-- max(polled, top, start) <= index < min(floor + max_in_flight, start + count).
--
-- KEYS[1]  the queue's hash; as in receive.lua
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  the subscription
-- ARGV[4]  the consumer in the consumer group
-- ARGV[5]  start
-- ARGV[6]  count
-- ARGV[7]  how many bytes at most, approximately, or empty
-- Returns  as receive.lua
-- uses: runs queue reader letters time delivery
local q, refusal = begin()
if not q then
  return refusal
end
local s = load_reader(q, ARGV[3])
local start, total = tonumber(ARGV[5]), tonumber(ARGV[6])
settle_what_is_due(q, s)

-- The lowest unsettled index in the range that was never delivered and is not ready; `till` if
-- none. A poll never skips it.
local function first_unready(from, till)
  local suspects = {}
  if #s.parent_names > 0 then
    suspects = unsettled_within(q, s, from, till)
  elseif q.odd ~= '' then
    for _, run in ipairs(unsettled_within(q, s, from, till)) do
      for _, part in ipairs(runs_within(q.key .. ':odd', run[1], run[2])) do
        suspects[#suspects + 1] = part
      end
    end
  end
  for _, run in ipairs(suspects) do
    for index = run[1], run[2] - 1 do
      if not (is_leased(s, index) or was_tried(s, index) or is_ready(q, s, index)) then
        return index
      end
    end
  end
  return till
end

local from = math.max(s.polled, s.top, start)
local till = math.min(floor_of(q, s) + s.max_in_flight, start + total, q.next)
till = math.min(till, from < till and first_unready(from, till) or till)
local room = room_of(s)
if s.paused ~= '' or from >= till or room <= 0 then
  finish()
  return NOTHING
end
local runs = ready_within(s, from, till)
if s.plain then
  for _, run in ipairs(ahead(q, s, math.max(from, s.walk), till, math.huge)) do
    runs[#runs + 1] = run
  end
end
table.sort(runs, function(one, other) return one[1] < other[1] end)
if runs_count(runs) > room then
  runs = cut(runs, room)
  till = runs[#runs][2]
end
if ARGV[7] ~= '' and #runs > 0 then
  local within = within_bytes(q, runs, tonumber(ARGV[7]))
  if runs_count(within) < runs_count(runs) then
    runs = within
    till = runs[#runs][2]
  end
end
-- What the poll passes over can still be received.
if s.plain then
  for _, run in ipairs(ahead(q, s, s.walk, till, math.huge)) do
    runs_add(s.key .. ':ready', PLAIN_LANE + run[1], PLAIN_LANE + run[2])
  end
  set_walk(s, math.max(s.walk, till))
end
if #s.parent_names == 0 and till > s.top then
  put(s, 'top', till)
end
put(s, 'polled', till)
put(s, 'passed', math.max(s.passed, till))
local answer = NOTHING
if #runs > 0 then
  for _, run in ipairs(runs) do
    run.lane = run.lane or PLAIN_LANE
  end
  answer = deliver(q, s, ARGV[4], runs, s.lease)
end
finish()
return answer
