#!lua
-- Ends the rebuild of a queue: restores its subscriptions, and lets everybody use it. Messages that
-- were in flight are ready again, and a late ack of them counts.
--
-- KEYS[1]  the queue's hash; writes all keys of its subscriptions, its :letters and :pins; removes its
--          :former
-- ARGV[1]  the time in microseconds if a test sets it, or empty
-- ARGV[2]  the token of restore_queue.lua
-- ARGV[3]  the least number that the queue's version gets
-- ARGV[4]  packed: first and next index, and the next index as of the subscriptions' fields
-- ARGV[5]  packed: fields of :letters, fields of :pins
-- ARGV[6]  packed: bounds of the indexes that have no message any more
-- ARGV[7…] packed, for each subscription: {name, fields, settled, dead, opened, matched, tries,
--          waiting}. Settled, dead, opened and matched are bounds; tries are {index, deliveries,
--          epoch, whether a late ack counts, reason, ...}, and waiting is {index, due, ...}.
-- Returns  ok; or lost as restore_messages.lua returns nil
-- uses: runs queue reader letters time family
if redis.call('HGET', KEYS[1], 'attempt') ~= ARGV[2] then
  return {'lost'}
end
local q = load_queue(KEYS[1])
set_time(q, ARGV[1])
local bounds = cmsgpack.unpack(ARGV[4])
put(q, 'first', bounds[1])
put(q, 'next', bounds[2])
local kept = cmsgpack.unpack(ARGV[5])
call_many('HSET', q.key .. ':letters', {}, kept[1])
call_many('HSET', q.key .. ':pins', {}, kept[2])
local gone = cmsgpack.unpack(ARGV[6])

local function add_bounds(key, bounds)
  local new = 0
  for at = 1, #bounds, 2 do
    new = new + runs_add(key, bounds[at], math.min(bounds[at + 1], q.next))
  end
  return new
end

-- Restore a subscription without placing its messages: that needs all other subscriptions.
local function restore_reader(one)
  local name, fields, settled, dead, opened, matched, tries = unpack(one)
  local key = q.key .. ':s:' .. name
  call_many('HSET', key, {}, fields)
  redis.call('XGROUP', 'CREATE', q.stream, name, '0', 'MKSTREAM')
  put(q, 'subs', q.subs == '' and name or q.subs .. ' ' .. name)
  local s = load_reader(q, name)
  for _, field in ipairs({'walk', 'top', 'reach', 'polled', 'passed', 'start'}) do
    put(s, field, math.min(s[field], q.next))
  end
  put(s, 'flying', 0)
  s.moved = true
  add_bounds(key .. ':matched', matched)
  if s.filtered then
    -- Those before include messages that are gone.
    local new = runs_within(key .. ':matched', math.max(bounds[3], s.start), q.next)
    put(s, 'matched_total', s.matched_total + runs_count(new))
  end
  add_bounds(key .. ':settled', settled)
  add_bounds(key .. ':dead', dead)
  for at = 1, #gone, 2 do
    for _, run in ipairs(unsettled_within(q, s, gone[at], gone[at + 1])) do
      count(s, 'expired', runs_add(key .. ':settled', run[1], run[2]))
    end
  end
  -- Below its start, too, there may be unsettled messages: dead letters that were replayed.
  local all = s.filtered and s.matched_total or q.next - s.start
  put(s, 'settled_total', all - runs_count(unsettled_within(q, s, 0, q.next)))
  add_bounds(key .. ':opened', opened)
  -- Receipts issued after the snapshot was taken must not match deliveries from now on.
  put(s, 'epoch', math.max(q.now, s.epoch + 1))
  put(s, 'gen', s.epoch)
  s.tried = {}
  for at = 1, #tries, 5 do
    local index, deliveries = tries[at], tries[at + 1]
    if index < q.next and not is_settled(q, s, index) then
      set_tried(s, index, deliveries, tries[at + 2], tries[at + 3], tries[at + 4])
      if deliveries > 0 then
        s.tried[#s.tried + 1] = index
      end
    end
  end
  return s
end

-- Place messages that were delivered before. They come first, as heads of their groups.
local function place_tried(s, waiting)
  local due = {}
  for at = 1, #waiting, 2 do
    due[waiting[at]] = waiting[at + 1]
  end
  for _, index in ipairs(s.tried) do
    local _, _, group = special_of(q, index)
    if group ~= '' and redis.call('HSETNX', s.key .. ':heads', group, text(index)) == 0 then
      redis.call('ZADD', s.key .. ':line', 0, line_member(group, index))
    end
    if #s.parent_names > 0 then
      runs_add(s.key .. ':opened', index, index + 1)
    end
    redis.call('XCLAIM', q.stream, s.name, 'restored', 0, entry_id(index), 'RETRYCOUNT',
      text((tried(s, index))), 'FORCE', 'JUSTID')
    wait_until(q, s, index, due[index] or 0)
  end
end

local function place_rest(s)
  local runs = {{0, q.next}}
  if #s.parent_names > 0 then
    runs = runs_within(s.key .. ':opened', 0, q.next)
  end
  local tried_runs, plain = runs_of(s.tried), s.plain
  for _, run in ipairs(runs) do
    local within = {}
    for _, one in ipairs(tried_runs) do
      if one[1] < run[2] and one[2] > run[1] then
        within[#within + 1] = {math.max(one[1], run[1]), math.min(one[2], run[2])}
      end
    end
    for _, part in ipairs(gaps(within, run[1], run[2])) do
      -- A plain subscription finds by its cursor only what is ahead; the rest has to be made ready.
      s.plain = false
      place(q, s, part[1], plain and math.min(part[2], s.walk) or part[2])
      s.plain = plain
      if plain then
        place(q, s, math.max(part[1], s.walk), part[2])
      end
    end
  end
end

local readers = {}
for at = 7, #ARGV do
  local one = cmsgpack.unpack(ARGV[at])
  readers[at - 6] = {restore_reader(one), one[8]}
end
for _, one in ipairs(readers) do
  place_tried(one[1], one[2])
  place_rest(one[1])
end
for _, one in ipairs(readers) do
  if #one[1].parent_names > 0 then
    parents_passed(q, one[1], 0, q.next)
  end
end
look_again(q, 0)
-- A server may know versions that are later than the one in the archive, but none from the future.
put(q, 'version', q.id .. '.' .. text(math.max(tonumber(ARGV[3]), q.now)))
redis.call('HDEL', q.key, 'attempt')
redis.call('UNLINK', q.key .. ':former')
tell(q)
finish()
return {'ok'}
