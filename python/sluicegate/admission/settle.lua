-- Change counters, whatever their limits are: what requests have really used, and what the ledger says was used.
-- Called at least every few seconds, it also says that its gateway is there.
--
-- KEYS: the sessions, then the counter of each change.
-- ARGV: the session, the number of the call, the session that this one follows (empty: it is open already), then three
--   for each change: the kind of its counter, a place, and what is added. Kinds: `held`; `total`, which is changed
--   where it is there; the seconds of a slice, with the slice's number as its place; and `raise`, a total that is made,
--   or raised to what is added, with the time at which it can be forgotten as its place.
-- Gives `done`, the time, how many gateways are there, and what is known of the session that this one follows; or
-- `gone`, where the session is not open.

local LIVE_SECONDS = 15
local FORGOTTEN_SECONDS = 3600
local HELD_SECONDS = 86400
local SLICES = 13

local sessions, session, call, follows = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local before, opened = '', false

local record = redis.call('HGET', sessions, session)
if follows ~= '' then
  -- Commands that the old session's connection still holds do nothing from now on. Doing this again changes nothing.
  before = redis.call('HGET', sessions, follows) or ''
  if before ~= '' and string.sub(before, 1, 6) ~= 'closed' then
    redis.call('HSET', sessions, follows, 'closed ' .. before)
  end
  -- Where it was opened before, and the answer was not heard, what was done since then is not forgotten.
  opened = record
  record = record or '0 0 '
elseif not record or string.sub(record, 1, 6) == 'closed' then
  return {'gone'}
end

-- No more is given back than there is: Redis may have lost what was taken.
local function no_less(amount, there)
  if tonumber(amount) < -tonumber(there) then
    return string.format('%.0f', -tonumber(there))
  end
  return amount
end

for i = 2, #KEYS do
  local key, at = KEYS[i], i * 3 - 2
  local kind, place, amount = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2]
  if kind == 'held' then
    if redis.call('HINCRBY', key, session, amount) <= 0 then
      redis.call('HDEL', key, session)
    end
    redis.call('EXPIRE', key, HELD_SECONDS)
  elseif kind == 'total' then
    local total = redis.call('GET', key)
    if total then
      redis.pcall('INCRBY', key, no_less(amount, total))
    end
  elseif kind == 'raise' then
    local total = redis.call('GET', key)
    if not total or tonumber(total) < tonumber(amount) then
      redis.call('SET', key, amount)
    end
    redis.call('EXPIREAT', key, place)
  else
    local slice = math.floor(now / kind)
    if slice - place < SLICES then
      -- A gateway's clock may be a little ahead.
      local field = string.format('%.0f', math.min(place, slice))
      local there = redis.call('HGET', key, field)
      redis.pcall('HINCRBY', key, field, no_less(amount, there or '0'))
      if not there then
        redis.call('EXPIRE', key, kind * (SLICES + 1))
      end
    end
  end
end

local live, known = 0, redis.call('HGETALL', sessions)
for i = 1, #known, 2 do
  local closed = string.sub(known[i + 1], 1, 6) == 'closed'
  local beat = tonumber(string.match(known[i + 1], '[%d.]+'))
  if known[i] == session or (not closed and now - beat < LIVE_SECONDS) then
    live = live + 1
  elseif now - beat > FORGOTTEN_SECONDS then
    redis.call('HDEL', sessions, known[i])
  end
end

if not opened then
  local last, marks = string.match(record, '^%S+ (%S+) (%S*)$')
  if last ~= call then marks = '' end
  redis.call('HSET', sessions, session, string.format('%.6f %s %s', now, call, marks .. 's'))
end
return {'done', string.format('%.6f', now), live, before}
