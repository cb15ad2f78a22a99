-- A queue. KEYS[1] is the queue's hash; all its other keys begin with that name, so they are in the
-- same slot of a cluster. docs/redis.md lists them.

-- How many due messages one call handles at most, so that no call blocks Redis for long.
local MOST_AT_ONCE = 10000
-- How many arguments a command gets at most: unpack() is limited.
local MOST_ARGUMENTS = 4000
-- How many unsettled messages are kept aside at most, so that retention can go past them.
local MAX_STRAGGLERS = 10000

-- The suffixes of a queue's keys, without those of its subscriptions.
local QUEUE_KEYS = {
  '', ':stream', ':odd', ':special', ':expires', ':expiring', ':forever', ':dedup', ':requests',
  ':dedup_times', ':stragglers', ':pins', ':letters', ':untold',
}
local QUEUE_NUMBERS = {
  'next', 'first', 'bytes', 'now', 'ttl_checked', 'max_messages', 'max_bytes', 'ttl', 'dedup',
  'retention', 'retention_messages', 'retention_bytes',
}
local QUEUE_TEXTS = {
  'id', 'version', 'fifo', 'retain', 'source', 'subs', 'dependents', 'odd', 'expires', 'dlq',
  'events', 'observed',
}
local QUEUE_FIELDS = {}
for _, name in ipairs(QUEUE_NUMBERS) do QUEUE_FIELDS[#QUEUE_FIELDS + 1] = name end
for _, name in ipairs(QUEUE_TEXTS) do QUEUE_FIELDS[#QUEUE_FIELDS + 1] = name end

local function words(line)
  local found = {}
  for word in string.gmatch(line or '', '%S+') do
    found[#found + 1] = word
  end
  return found
end

-- What `save` has to write and publish: loaded objects with their changes, and news by channel.
local changed, news = {}, {}

local function load_hash(key, fields, numbers)
  local values = redis.call('HMGET', key, unpack(fields))
  local found = {key = key, unsaved = {}}
  for at, name in ipairs(fields) do
    local value = values[at] or ''
    if at <= numbers then
      found[name] = tonumber(value)
    else
      found[name] = value
    end
  end
  changed[#changed + 1] = found
  return found
end

local function load_queue(key)
  local q = load_hash(key, QUEUE_FIELDS, #QUEUE_NUMBERS)
  if q.id ~= '' then
    q.stream = key .. ':stream'
    q.readers = {}
    return q
  end
end

-- Change a field. `save` writes it, so every script that changes something must call that.
local function put(object, name, value)
  object[name] = value
  object.unsaved[name] = value
end

local function save()
  for _, object in ipairs(changed) do
    if object.queue and (next(object.unsaved) or next(object.counts)) then
      object.unsaved.changed = object.queue.now  -- of a subscription: see lib/snapshot.lua
    end
    local fields = {}
    for name, value in pairs(object.unsaved) do
      fields[#fields + 1] = name
      fields[#fields + 1] = type(value) == 'number' and text(value) or value
    end
    if #fields > 0 then
      redis.call('HSET', object.key, unpack(fields))
      object.unsaved = {}
    end
    if object.counts then
      for name, count in pairs(object.counts) do
        redis.call('HINCRBY', object.key, name, text(count))
      end
      object.counts = {}
    end
  end
  for channel, count in pairs(news) do
    redis.call('PUBLISH', channel, count)
  end
end

-- Announce that messages may be deliverable, to `count` waiters of each subscription or to all.
local function tell(q, count)
  local channel = q.key .. ':news'
  if news[channel] ~= '*' then
    news[channel] = count or '*'
  end
end

-- Set the queue's time in microseconds: Redis's own, or the given one. It never runs backwards.
local function set_time(q, given)
  local now
  if given ~= '' then
    now = tonumber(given)
  else
    local time = redis.call('TIME')
    now = tonumber(time[1]) * 1000000 + tonumber(time[2])
  end
  if now > q.now then
    put(q, 'now', now)
  end
end

-- Load the queue and set its time. ARGV[1] is the time or empty, ARGV[2] the version of the
-- definitions that the server knows. nil and the script's answer if there is no such queue, or its
-- definitions have changed.
local function begin()
  local q = load_queue(KEYS[1])
  if not q then
    return nil, {'gone'}
  end
  if q.version ~= ARGV[2] then
    return nil, {'stale'}
  end
  set_time(q, ARGV[1])
  return q
end

-- A stream does not allow 0-0, so index 0 is 0-1. A range of indexes is still a range of ids.
local function entry_id(index)
  if index == 0 then
    return '0-1'
  end
  return text(index) .. '-0'
end

local function entry_index(entry)
  return tonumber(string.match(entry[1], '^%d+'))
end

local function entry_field(entry, name)
  local fields = entry[2]
  for at = 1, #fields, 2 do
    if fields[at] == name then
      return fields[at + 1]
    end
  end
end

local function entry_at(q, index)
  return redis.call('XRANGE', q.stream, text(index), text(index))[1]
end

local function entries_of(q, runs)
  local found = {}
  for _, run in ipairs(runs) do
    for _, entry in ipairs(redis.call('XRANGE', q.stream, text(run[1]), text(run[2] - 1))) do
      found[#found + 1] = entry
    end
  end
  return found
end

-- Call a command with any number of arguments, in parts. `before` has an argument that comes before
-- them in every part, or none.
local function call_many(command, key, before, arguments)
  if #arguments == 0 then
    return
  end
  if #arguments <= MOST_ARGUMENTS then
    if before[1] then
      redis.call(command, key, before[1], unpack(arguments))
    else
      redis.call(command, key, unpack(arguments))
    end
    return
  end
  for at = 1, #arguments, MOST_ARGUMENTS do
    local part = {before[1]}
    for i = at, math.min(#arguments, at + MOST_ARGUMENTS - 1) do
      part[#part + 1] = arguments[i]
    end
    redis.call(command, key, unpack(part))
  end
end

-- Whether a message still exists.
local function holds(q, index)
  if index >= q.first then
    return index < q.next
  end
  return redis.call('ZSCORE', q.key .. ':stragglers', text(index)) ~= false
end

-- Priority, due time and group of a message: 0 without a delay, '' without a group.
local function special_of(q, index)
  local found = q.odd ~= '' and redis.call('HGET', q.key .. ':special', text(index))
  if not found then
    return 0, 0, ''
  end
  local priority, due, group = string.match(found, '^(%d+):(%d+):(.*)$')
  return tonumber(priority), tonumber(due), group
end

-- The lowest index from q.first on whose entry has a field of at least this value; q.next if none.
-- The field must ascend with the index.
local function search(q, name, least)
  local low, high = q.first, q.next
  while low < high do
    local middle = math.floor((low + high) / 2)
    local entry = redis.call('XRANGE', q.stream, text(middle), '+', 'COUNT', 1)[1]
    if not entry or tonumber(entry_field(entry, name)) >= least then
      high = middle
    else
      low = entry_index(entry) + 1
    end
  end
  return low
end

-- Bytes of the messages from the batch of an index to the end.
local function bytes_from(q, index)
  if index >= q.next then
    return 0
  end
  local entry = redis.call('XRANGE', q.stream, text(math.max(index, q.first)), '+', 'COUNT', 1)[1]
  return entry and q.bytes - tonumber(entry_field(entry, 's')) or 0
end

-- When a message expires: at its own time or the queue's, whichever comes first. nil if never.
local function expires_at(q, index)
  local own
  if q.expires ~= '' then
    own = redis.call('HGET', q.key .. ':expires', text(index))
    if own == 'never' then
      return nil
    end
    own = own and tonumber(own)
  end
  if not q.ttl then
    return own or nil
  end
  local entry = entry_at(q, index)
  local by_ttl = entry and tonumber(entry_field(entry, 't')) + q.ttl
  if own and by_ttl then
    return math.min(own, by_ttl)
  end
  return own or by_ttl
end

local function set_expiry(q, index, time)
  put(q, 'expires', '1')
  redis.call('HSET', q.key .. ':expires', text(index), text(time))
  redis.call('ZADD', q.key .. ':expiring', text(time), text(index))
end

-- Store what most messages do not have: {priority, due, group, expiry, dedup key}. The argument
-- `due` applies instead of the one in `extra`; it is 0 without a delay. Returns whether the message
-- is odd: has a priority, a delay or a group.
local function set_apart(q, index, created, extra, due)
  local priority, group = extra[1], q.fifo ~= '' and extra[3] or ''
  local is_odd = priority > 0 or due > 0 or group ~= ''
  if is_odd then
    put(q, 'odd', '1')
    runs_add(q.key .. ':odd', index, index + 1)
    redis.call('HSET', q.key .. ':special', text(index),
      priority .. ':' .. text(due) .. ':' .. group)
  end
  if extra[4] ~= '' then
    set_expiry(q, index, extra[4])
  end
  if extra[5] ~= '' then
    redis.call('HSET', q.key .. ':dedup', extra[5], text(index) .. ':' .. created)
    redis.call('ZADD', q.key .. ':dedup_times', created, 'm' .. extra[5])
  end
  return is_odd
end

-- Let a message that was replayed after its expiry never expire again: somebody wants it.
local function outlive(q, index)
  local time = expires_at(q, index)
  if time and time <= q.now then
    put(q, 'expires', '1')
    redis.call('HSET', q.key .. ':expires', text(index), 'never')
    redis.call('ZREM', q.key .. ':expiring', text(index))
    redis.call('ZADD', q.key .. ':forever', text(index), text(index))
  end
end

-- Look for expired messages from `start` again: a subscription goes back to there, and they must
-- expire for it, too.
local function look_again(q, start)
  if q.ttl_checked > start then
    put(q, 'ttl_checked', start)
  end
  if q.expires ~= '' then
    local all = redis.call('HGETALL', q.key .. ':expires')
    for at = 1, #all, 2 do
      if all[at + 1] ~= 'never' then
        redis.call('ZADD', q.key .. ':expiring', all[at + 1], all[at])
      end
    end
  end
end

-- Indexes of these runs that may be members of a key, which place.size counts. If the key has fewer
-- members than the runs, exactly those; otherwise all indexes, which is quicker than to check.
local function members_within(key, place, runs)
  local size, found = redis.call(place.size, key), {}
  if size == 0 then
    return found
  end
  if runs_count(runs) <= size then
    for _, run in ipairs(runs) do
      for index = run[1], run[2] - 1 do
        found[#found + 1] = text(index)
      end
    end
    return found
  end
  local all = place.size == 'HLEN' and redis.call('HKEYS', key) or redis.call('ZRANGE', key, 0, -1)
  for _, member in ipairs(all) do
    local index = tonumber(member)
    for _, run in ipairs(runs) do
      if index >= run[1] and index < run[2] then
        found[#found + 1] = member
        break
      end
    end
  end
  return found
end

-- Remove what is stored besides the entries of messages.
local function forget_messages(q, indexes)
  if #indexes == 0 then
    return
  end
  if q.odd ~= '' then
    call_many('HDEL', q.key .. ':special', {}, indexes)
  end
  if q.expires ~= '' then
    call_many('HDEL', q.key .. ':expires', {}, indexes)
    call_many('ZREM', q.key .. ':expiring', {}, indexes)
    call_many('ZREM', q.key .. ':forever', {}, indexes)
  end
end
