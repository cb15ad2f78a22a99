-- A set of indexes kept as runs, as in penstock.core.runs: its cost follows the number of gaps, not
-- of indexes. A run start <= i < stop is one member of a sorted set: the score is start, the member
-- stop. Runs are disjoint and never adjacent, so no two have the same stop.

-- A number in a form that Redis and Lua read back exactly: '..' alone rounds to 14 digits. The
-- results are kept, since a script needs the same index for several keys.
local texts = {}
local function text(number)
  local found = texts[number]
  if not found then
    found = string.format('%.0f', number)
    texts[number] = found
  end
  return found
end

-- The last run that starts at or below an index: start and stop, or nothing.
local function runs_at(key, index)
  local found = redis.call('ZREVRANGEBYSCORE', key, index, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if found[1] then
    return tonumber(found[2]), tonumber(found[1])
  end
end

local function runs_has(key, index)
  local start, stop = runs_at(key, index)
  return start ~= nil and index < stop
end

-- The lowest index from this one on that is not in the set.
local function runs_next_gap(key, index)
  local start, stop = runs_at(key, index)
  if start and index < stop then
    return stop
  end
  return index
end

-- The lowest index from this one on that is in the set.
local function runs_next(key, index)
  local start, stop = runs_at(key, index)
  if start and index < stop then
    return index
  end
  local later = redis.call('ZRANGEBYSCORE', key, index, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if later[1] then
    return tonumber(later[2])
  end
end

-- One above the highest index; 0 when there is none.
local function runs_stop(key)
  local last = redis.call('ZREVRANGE', key, 0, 0)
  return tonumber(last[1] or 0)
end

-- The parts within start..stop, ascending: {{a, b}, ...}. With a limit, no more indexes than that.
local function runs_within(key, start, stop, limit)
  local found, left = {}, limit or math.huge
  if start >= stop or left <= 0 then
    return found
  end
  local function take(a, b)
    b = math.min(b, a + left)
    found[#found + 1] = {a, b}
    left = left - (b - a)
  end
  local a, b = runs_at(key, start)
  if a and b > start then
    take(start, math.min(b, stop))
  end
  local chunk = limit and 64 or 4096
  local after = start
  while left > 0 do
    local later = redis.call('ZRANGEBYSCORE', key, '(' .. text(after), '(' .. text(stop),
      'WITHSCORES', 'LIMIT', 0, chunk)
    for at = 1, #later, 2 do
      after = tonumber(later[at + 1])
      take(after, math.min(tonumber(later[at]), stop))
      if left <= 0 then
        break
      end
    end
    if #later < 2 * chunk then
      break
    end
  end
  return found
end

-- The parts of start..stop that ascending runs leave out.
local function gaps(runs, start, stop)
  local found, at = {}, start
  for _, run in ipairs(runs) do
    if at < run[1] then
      found[#found + 1] = {at, run[1]}
    end
    at = math.max(at, run[2])
  end
  if at < stop then
    found[#found + 1] = {at, stop}
  end
  return found
end

local function runs_outside(key, start, stop)
  return gaps(runs_within(key, start, stop), start, stop)
end

-- Add a run; the number of its indexes that were new.
local function runs_add(key, start, stop)
  if start >= stop then
    return 0
  end
  local new_start, new_stop, before = start, stop, 0
  local a, b = runs_at(key, start)
  if a and b >= start then
    if b >= stop then
      return 0
    end
    redis.call('ZREM', key, text(b))
    new_start, before = a, b - a
  end
  local later = redis.call('ZRANGEBYSCORE', key, '(' .. text(start), text(stop), 'WITHSCORES')
  for at = 1, #later, 2 do
    local c, d = tonumber(later[at + 1]), tonumber(later[at])
    redis.call('ZREM', key, later[at])
    before = before + (d - c)
    new_stop = math.max(new_stop, d)
  end
  redis.call('ZADD', key, text(new_start), text(new_stop))
  return new_stop - new_start - before
end

-- Remove a run; the number of its indexes that were in the set.
local function runs_discard(key, start, stop)
  local removed = 0
  local parts = runs_within(key, start, stop)
  for _, part in ipairs(parts) do
    local a, b = runs_at(key, part[1])
    redis.call('ZREM', key, text(b))
    if a < part[1] then
      redis.call('ZADD', key, text(a), text(part[1]))
    end
    if b > part[2] then
      redis.call('ZADD', key, text(part[2]), text(b))
    end
    removed = removed + (part[2] - part[1])
  end
  return removed
end

local function runs_count(runs)
  local count = 0
  for _, run in ipairs(runs) do
    count = count + run[2] - run[1]
  end
  return count
end

-- The runs of indexes in any order, with or without repeats. Sorts the argument.
local function runs_of(indexes)
  for at = 2, #indexes do
    if indexes[at] < indexes[at - 1] then
      table.sort(indexes)
      break
    end
  end
  local found, last = {}, nil
  for _, index in ipairs(indexes) do
    if last and index == last[2] then
      last[2] = index + 1
    elseif not last or index > last[2] then
      last = {index, index + 1}
      found[#found + 1] = last
    end
  end
  return found
end

-- The union of runs in any order that may overlap. Sorts the argument.
local function union(runs)
  table.sort(runs, function(one, other) return one[1] < other[1] end)
  local found, last = {}, nil
  for _, run in ipairs(runs) do
    if last and run[1] <= last[2] then
      last[2] = math.max(last[2], run[2])
    else
      last = {run[1], run[2]}
      found[#found + 1] = last
    end
  end
  return found
end

-- The first indexes of runs, no more than the limit.
local function cut(runs, limit)
  local found = {}
  for _, run in ipairs(runs) do
    if limit <= 0 then
      break
    end
    found[#found + 1] = {run[1], math.min(run[2], run[1] + limit), lane = run.lane}
    limit = limit - (run[2] - run[1])
  end
  return found
end
