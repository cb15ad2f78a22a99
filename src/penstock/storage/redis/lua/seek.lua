#!lua
-- Moves a subscription back or forward. Receipts of deliveries in flight become void.
--
-- KEYS[1]  the queue's hash; writes the keys of the subscription and its children
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the version of the definitions that the server knows
-- ARGV[3]  the next version
-- ARGV[4]  the subscription
-- ARGV[5]  kind of the start position: earliest, latest, index or time
-- ARGV[6]  value of the start position
-- ARGV[7]  packed: {the index from which on its matches are known, earlier matches as bounds}
-- Returns  ok; or behind, the new start, and the index from which on its matches are known, if that
--          is higher
-- uses: runs queue reader letters time family
local q, refusal = begin()
if not q then
  return refusal
end
local s = load_reader(q, ARGV[4])
local index = resolve_start(q, ARGV[5], ARGV[6])
if s.filtered then
  local found = cmsgpack.unpack(ARGV[7])
  local known = math.max(found[1], q.first)
  if index < known then
    return {'behind', index, known}
  end
  add_matches(s, found[2])
  put(s, 'since', found[1])
  put(q, 'version', ARGV[3])
end
look_again(q, index)
local floor = floor_of(q, s)
if index > floor then
  count(s, 'skipped', runs_count(unsettled_within(q, s, floor, index)))
end
local before = came(q, s)
-- From now on everything before the index is settled, nothing else is, and nothing is in flight.
drop_keys(s.key, {
  ':settled', ':opened', ':ready', ':waiting', ':heads', ':line', ':leases', ':flights', ':tries',
})
runs_add(s.key .. ':settled', 0, index)
runs_discard(s.key .. ':dead', index, q.next)
runs_add(s.key .. ':opened', 0, index)
for _, run in ipairs(runs_within(s.key .. ':dead', 0, index)) do
  -- Except dead letters: when they are replayed, they wait for the parents again.
  runs_discard(s.key .. ':opened', run[1], run[2])
end
for _, field in ipairs({'start', 'walk', 'top', 'reach', 'polled', 'passed'}) do
  put(s, field, index)
end
put(s, 'epoch', s.epoch + 1)
put(s, 'gen', s.epoch)
put(s, 'settled_total', 0)
put(s, 'flying', 0)
count_matches(q, s, index)
redis.call('XGROUP', 'DESTROY', q.stream, s.name)
redis.call('XGROUP', 'CREATE', q.stream, s.name, index > 0 and entry_id(index - 1) or '0',
  'MKSTREAM', 'ENTRIESREAD', text(index))
if #s.parent_names > 0 then
  parents_passed(q, s, index, q.next)
else
  place(q, s, index, q.next)
end
-- As many as before may have come from now on, and they are news all the same.
count(s, 'news', before + 1 - came(q, s))
for _, name in ipairs(words(s.children)) do
  parents_passed(q, load_reader(q, name), 0, index)
end
drop_stragglers(q, 0, q.first)
cascade(q, s)
tell(q)
finish()
return {'ok'}
