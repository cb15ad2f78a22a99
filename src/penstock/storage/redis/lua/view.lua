#!lua flags=no-writes
-- The oldest messages and their state in a subscription, which is not changed.
--
-- KEYS[1]  the queue's hash; reads its :stream and the keys of the subscription
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  the subscription
-- ARGV[4]  settled, unsettled or all
-- ARGV[5]  how many at most
-- ARGV[6]  the first index
-- Returns  ok, entries, and for each {1 if settled, deliveries, deadline}; the deadline is -1 if it
--          is not leased, -2 if its lease never ends
-- uses: runs queue reader
local q, refusal = begin()
if not q then
  return refusal
end
local s = load_reader(q, ARGV[3])
local limit, start = tonumber(ARGV[5]), tonumber(ARGV[6])
local first = math.max(q.first, start)
local runs = {}
if ARGV[4] == 'all' then
  runs = cut({{first, q.next}}, first < q.next and limit or 0)
elseif ARGV[4] == 'settled' then
  for _, run in ipairs(matched_within(q, s, first, q.next)) do
    for _, part in ipairs(runs_within(s.key .. ':settled', run[1], run[2], limit)) do
      runs[#runs + 1] = part
    end
  end
  runs = cut(runs, limit)
else
  runs = cut(unsettled_within(q, s, math.max(floor_of(q, s), start), q.next), limit)
end
local entries, states = entries_of(q, runs), {}
for at, entry in ipairs(entries) do
  local index = entry_index(entry)
  local deadline = leased_until(s, index) or -1
  states[at] = {
    is_settled(q, s, index) and 1 or 0,
    (deliveries_of(s, index)),
    deadline == math.huge and -2 or deadline,
  }
end
return {'ok', entries, states}
