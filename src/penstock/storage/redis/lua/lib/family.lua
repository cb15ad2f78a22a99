-- Dependencies between subscriptions, and what a change of them means for messages.

-- The parents among the packed fields of a subscription; all other fields are appended to `own`.
local function take_parents(packed, own)
  local fields, parents = cmsgpack.unpack(packed), {}
  for at = 1, #fields, 2 do
    if fields[at] == 'parents' then
      parents = words(fields[at + 1])
    else
      own[#own + 1] = fields[at]
      own[#own + 1] = fields[at + 1]
    end
  end
  return parents
end

local function join(names)
  return table.concat(names, ' ')
end

local function drop_keys(key, suffixes)
  local keys = {}
  for at, suffix in ipairs(suffixes) do
    keys[at] = key .. suffix
  end
  redis.call('UNLINK', unpack(keys))
end

-- Drop reservations of filters that are older than so many microseconds: the servers that made them
-- have died. Returns the others, and whether any was dropped; `pending` is left to the caller.
local function drop_abandoned(q, age)
  local kept, pending = {}, cjson.decode(redis.call('HGET', q.key, 'pending') or '[]')
  for _, one in ipairs(pending) do
    if q.now - one[3] < age then
      kept[#kept + 1] = one
    else
      redis.call('UNLINK', q.key .. ':f:' .. one[1] .. ':matched')
    end
  end
  return kept, #kept < #pending
end

-- Replace the parents of a subscription. Messages that were delivered before stay as they are. All
-- others wait for the new parents, and only for them.
local function rewire(q, s, parents)
  if #parents == 0 and #s.parent_names == 0 then
    return
  end
  local given = {}
  land(s)
  for _, member in ipairs(redis.call('ZRANGE', s.key .. ':leases', 0, -1)) do
    given[#given + 1] = {tonumber(member), true}
  end
  local waits = {}
  for _, member in ipairs(redis.call('HKEYS', s.key .. ':tries')) do
    local index = tonumber(member)
    if was_tried(s, index) and not is_leased(s, index) then
      given[#given + 1] = {index, false}
      waits[index] = redis.call('ZSCORE', s.key .. ':waiting', member)
    end
  end
  table.sort(given, function(one, other) return one[1] < other[1] end)
  drop_keys(s.key, {':opened', ':ready', ':heads', ':line', ':waiting'})
  if redis.call('EXISTS', s.key .. ':settled') == 1 then
    redis.call('COPY', s.key .. ':settled', s.key .. ':opened')
  end
  for _, run in ipairs(runs_within(s.key .. ':dead', 0, q.next)) do
    -- A dead letter that is replayed waits for the new parents, too.
    runs_discard(s.key .. ':opened', run[1], run[2])
  end
  for _, one in ipairs(given) do
    local index, leased = one[1], one[2]
    runs_add(s.key .. ':opened', index, index + 1)
    local _, _, group = special_of(q, index)
    if group ~= '' then
      if redis.call('HSETNX', s.key .. ':heads', group, text(index)) == 0 then
        redis.call('ZADD', s.key .. ':line', 0, line_member(group, index))
      end
    end
    if not leased then
      if waits[index] then
        redis.call('ZADD', s.key .. ':waiting', waits[index], text(index))
      else
        make_ready(q, s, index)
      end
    end
  end
  put(s, 'parents', join(parents))
  s.parent_names = parents
  -- Not plain for now, so that everything up to here is placed; its cursor then begins behind that.
  s.plain = false
  parents_passed(q, s, 0, q.next)
  s.plain = not s.filtered and #parents == 0
  if #parents == 0 then
    put(s, 'top', math.max(s.top, q.next))
    put(s, 'reach', math.max(s.reach, q.next))
    put(s, 'walk', q.next)
    put(s, 'passed', q.next)
    s.moved = true
  end
end

-- Whether any subscription waits for others: publish.lua has to know.
local function note_dependents(q)
  for _, name in ipairs(words(q.subs)) do
    if #load_reader(q, name).parent_names > 0 then
      put(q, 'dependents', '1')
      return
    end
  end
  put(q, 'dependents', '')
end

-- Take a subscription off the children of its parents. One that is being deleted is left alone.
local function leave_parents(q, s)
  for _, name in ipairs(s.parent_names) do
    if has_reader(q, name) then
      local parent, others = load_reader(q, name), {}
      for _, child in ipairs(words(parent.children)) do
        if child ~= s.name then
          others[#others + 1] = child
        end
      end
      put(parent, 'children', join(others))
    end
  end
end

-- Replace the parents of a subscription, and make it their child. The others are not even looked
-- at: there may be many.
local function link(q, s, parents)
  if join(parents) == join(s.parent_names) then
    return
  end
  leave_parents(q, s)
  rewire(q, s, parents)
  for _, name in ipairs(parents) do
    local parent = load_reader(q, name)
    put(parent, 'children', parent.children == '' and s.name or parent.children .. ' ' .. s.name)
  end
  note_dependents(q)
end

-- The index of a start position.
local function resolve_start(q, kind, value)
  if kind == 'earliest' then
    return q.first
  elseif kind == 'latest' then
    return q.next
  elseif kind == 'index' then
    return math.min(math.max(tonumber(value), q.first), q.next)
  end
  return search(q, 't', tonumber(value))
end

-- Add earlier matches of a subscription's filter, given as bounds.
local function add_matches(s, bounds)
  for at = 1, #bounds, 2 do
    runs_add(s.key .. ':matched', bounds[at], bounds[at + 1])
  end
end

local function count_matches(q, s, start)
  put(s, 'matched_total', s.filtered
    and runs_count(runs_within(s.key .. ':matched', start, q.next)) or 0)
end
