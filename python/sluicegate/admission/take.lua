-- Hold one request against all of its limits: take what it wants of each counter, or nothing of any.
--
-- KEYS: the sessions, then the counter of each limit.
-- ARGV: the session, the number of the call, then five for each limit: the kind of its counter (`held`, `total`, or
--   the seconds of a slice), what it limits, the most that may be used, what the request wants, and how much of that
--   is no guess.
-- Gives the verdict, the time, and a text for each limit: its mark, what is used of it, and, of slices, their numbers
-- and amounts; of a slice that is there twice the last one counts. The verdict is `taken` (the mark: what was taken),
-- `over` (the mark: 1 where this limit refuses), `missing` (the mark: 1 where the total is not here), or alone `gone`,
-- where the session is not open.

local LIVE_SECONDS = 15
local HELD_SECONDS = 86400
local SLICES = 13

local sessions, session, call = KEYS[1], ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local count = #KEYS - 1

local record = redis.call('HGET', sessions, session)
if not record or string.sub(record, 1, 6) == 'closed' then
  return {'gone'}
end

-- Whoever did not hear an answer learns by this what was done.
local function ended(verdict, mark, texts)
  local last, before = string.match(record, '^%S+ (%S+) (%S*)$')
  if last ~= call then before = '' end
  redis.call('HSET', sessions, session, string.format('%.6f %s %s', now, call, before .. mark))
  return {verdict, string.format('%.6f', now), unpack(texts)}
end

-- What runs: at gateways that have been heard of lately.
local function held(key)
  local sum, fields = 0, redis.call('HGETALL', key)
  for i = 1, #fields, 2 do
    local beat = redis.call('HGET', sessions, fields[i])
    beat = beat and tonumber(string.match(beat, '^(%S+)'))
    if not beat then
      redis.call('HDEL', key, fields[i])
    elseif now - beat < LIVE_SECONDS then
      sum = sum + tonumber(fields[i + 1])
    end
  end
  return sum
end

-- What was used in slices that still count, and the text of those slices. Most of the script's time is spent here:
-- the text is put together at once, of what is stored.
local function slid(key, seconds)
  local first = math.floor(now / seconds) - SLICES + 1
  local sum, fields = 0, redis.call('HGETALL', key)
  for i = #fields - 1, 1, -2 do
    if fields[i] - first < 0 then
      redis.call('HDEL', key, fields[i])
      table.remove(fields, i + 1)
      table.remove(fields, i)
    else
      sum = sum + fields[i + 1]
    end
  end
  return sum, table.concat(fields, ' ')
end

local used, slices, marks = {}, {}, {}
local missing, over = false, false
for i = 1, count do
  local key, kind = KEYS[i + 1], ARGV[i * 5 - 2]
  marks[i] = 0
  if kind == 'held' then
    used[i] = held(key)
  elseif kind == 'total' then
    local total = redis.call('GET', key)
    used[i] = tonumber(total or '0')
    if not total then
      missing, marks[i] = true, 1
    end
  else
    used[i], slices[i] = slid(key, tonumber(kind))
  end
end

local function texts()
  local said = {}
  for i = 1, count do
    said[i] = string.format('%.0f %.0f %s', marks[i], used[i], slices[i] or '')
  end
  return said
end

if missing then
  return ended('missing', 'n', texts())
end

for i = 1, count do
  local at = i * 5 - 2
  local resource, most, amount = ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local fits
  if resource == 'cost' then
    fits = used[i] < most
  else
    -- What the output may be is a guess: it refuses nobody who is alone in the window.
    fits = used[i] + amount <= most or (used[i] <= 0 and tonumber(ARGV[at + 4]) <= most)
  end
  if not fits then
    over, marks[i] = true, 1
  end
end
if over then
  return ended('over', 'n', texts())
end

local mark = 't'
for i = 1, count do
  local key, at = KEYS[i + 1], i * 5 - 2
  local kind, amount = ARGV[at], tonumber(ARGV[at + 3])
  if ARGV[at + 1] == 'cost' then
    local left = tonumber(ARGV[at + 2]) - used[i]
    if left < amount then
      amount, mark = left, 'c'
    end
  end
  marks[i] = amount
  if amount > 0 then
    local added = string.format('%.0f', amount)
    used[i] = used[i] + amount
    -- A counter that would not fit into 64 bits stays as it is.
    if kind == 'held' then
      redis.call('HINCRBY', key, session, added)
      redis.call('EXPIRE', key, HELD_SECONDS)
    elseif kind == 'total' then
      redis.pcall('INCRBY', key, added)
    else
      local slice = string.format('%.0f', math.floor(now / kind))
      local there = redis.pcall('HINCRBY', key, slice, added)
      if type(there) == 'number' then
        slices[i] = string.format('%s %s %.0f', slices[i], slice, there)
      end
      if there == amount then
        redis.call('EXPIRE', key, kind * (SLICES + 1))
      end
    end
  end
end
return ended('taken', mark, texts())
