// Logs of openpilot: what is read of them, what is left out of damaged ones, what is refused.
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { type LogDamage, readLog, type SparkError, summarizeLog } from 'dgx-spark'
import t from 'tap'
import {
  can,
  carState,
  drive,
  event,
  listPointer,
  message,
  structPointer,
} from '../fixtures/route/write-log.js'

const folder = t.testdir({})
let files = 0

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const item of items) all.push(item)
  return all
}

/** A file with these bytes. */
function fileOf(...parts: Uint8Array[]): string {
  const file = path.join(folder, `log-${files++}`)
  writeFileSync(file, Buffer.concat(parts))
  return file
}

/** Times in nanoseconds and damage of a log, after all its values were read. */
async function read(...parts: Uint8Array[]): Promise<{ times: bigint[]; damage: LogDamage[] }> {
  const log = readLog(fileOf(...parts))
  const times: bigint[] = []
  for await (const { logMonoTime, value } of log) {
    t.not(value, undefined)
    times.push(logMonoTime)
  }
  return { times, damage: [...log.damage] }
}

t.test('events, their values, and filters', async t => {
  const file = fileOf(
    carState(10n, 12.5, -3),
    can(20n, 0x3bb, [1, 2, 3], 128),
    event(22, 30n, [0, 0], [], false),
    event(152, 40n, [0, 0], []),
  )
  const all = await collect(readLog(file))
  t.strictSame(
    all.map(each => [each.which, each.ordinal, each.logMonoTime, each.valid]),
    [
      ['carState', 22, 10n, true],
      ['can', 5, 20n, true],
      ['carState', 22, 30n, false],
      ['ordinal152', 152, 40n, true],
    ],
  )
  const [first, second, third, fourth] = all
  if (first?.which === 'carState') {
    t.match(first.value, { vEgo: 12.5, steeringAngleDeg: -3, gearShifter: 'unknown', wheelSpeeds: null })
    t.equal(first.value, first.value, 'decoded once')
  }
  t.strictSame(second?.value, [{ address: 0x3bb, dat: Uint8Array.of(1, 2, 3), src: 128 }])
  t.equal(third?.value, null, 'a null pointer')
  t.equal(fourth?.value, null, 'a type of a later schema')

  const times = async (filter: Parameters<typeof readLog>[1]): Promise<bigint[]> =>
    (await collect(readLog(file, filter))).map(each => each.logMonoTime)
  t.strictSame(await times({ which: ['carState'] }), [10n, 30n])
  t.strictSame(await times({ which: ['ordinal152', 'can'] }), [20n, 40n])
  t.strictSame(await times({ from: 20n, to: 40n }), [20n, 30n])
  await t.rejects(times({ which: ['carStat'] }), {
    code: 'ERR_ARGUMENT',
    message: "there are no events named 'carStat' (did you mean 'carState'?)",
  })
  t.throws(() => readLog(''), { code: 'ERR_ARGUMENT' })
  t.throws(() => readLog(file, { from: 3 as never }), { message: /^from must be a bigint/ })
  t.throws(() => readLog(file, { wich: [] } as never), { message: /did you mean 'which'/ })
  await t.rejects(collect(readLog(path.join(folder, 'missing'))), { code: 'ERR_IO' })
})

t.test('what has another type than it should reads as if it were not there', async t => {
  const file = fileOf(
    event(5, 1n, structPointer(0, 1, 0), [1, 0]),
    event(22, 2n, listPointer(0, 4, 1), [1, 0]),
    event(5, 3n, listPointer(0, 4, 1), [1, 0]),
    event(18, 4n, structPointer(0, 1, 0), [1, 0]),
  )
  t.strictSame(
    (await collect(readLog(file))).map(({ value }) => value),
    [[], null, [], ''],
  )
})

t.test('names of other years', async t => {
  const file = fileOf(...[2, 72, 68, 134, 90, 71].map((ordinal, i) => event(ordinal, BigInt(i), [0, 0], [])))
  const ordinals = async (name: string): Promise<number[]> =>
    (await collect(readLog(file, { which: [name] }))).map(each => each.ordinal)
  for (const name of ['roadCameraState', 'narrowRoadCameraState', 'frame'])
    t.strictSame(await ordinals(name), [2], name)
  for (const name of ['liveLocationKalman', 'liveLocationKalmanDEPRECATED'])
    t.strictSame(await ordinals(name), [72], name)
  t.strictSame(await ordinals('onroadEvents'), [68, 134], 'one name of two ordinals')
  t.strictSame(await ordinals('qNarrowRoadEncodeIdx'), [90])
  t.strictSame(await ordinals('driverMonitoringState'), [71])
})

t.test('messages of several segments', async t => {
  const far = (segment: number, word: number): number[] => [(word << 3) | 2, segment]
  const data = [7, 0, 21, 0]
  const inner = [0x41c80000, 0]
  const single = message(
    [...structPointer(0, 2, 1), ...data, ...far(1, 0)],
    [...structPointer(0, 1, 0), ...inner],
  )
  const double = message(
    [...structPointer(0, 2, 1), ...data, ...[(0 << 3) | 6, 1]],
    [...far(2, 0), ...structPointer(0, 1, 0)],
    inner,
  )
  for (const bytes of [single, double]) {
    const [found] = await collect(readLog(fileOf(bytes, carState(8n, 1, 1)), { which: ['carState'] }))
    t.match(found, { value: { vEgo: 25 } })
  }
})

t.test('a log that is cut off', async t => {
  const whole = drive(3)
  const { times } = await read(whole)
  t.equal(times.length, 60)
  for (const [length, kind] of [
    [whole.length - 1, 'truncated'],
    [whole.length - 8 * 11 - 3, 'truncated'],
    [4, 'truncated'],
  ] as const) {
    const part = await read(whole.subarray(0, length))
    t.strictSame(part.times, times.slice(0, part.times.length))
    t.match(part.damage, [{ kind, reason: 'the log ends in it' }])
  }
  t.strictSame(await read(), { times: [], damage: [] }, 'an empty file')
})

t.test('damaged messages are left out and reported', async t => {
  const [one, two] = [carState(1n, 1, 1), carState(9n, 2, 2)]
  const bad = carState(5n, 1, 1)
  const changed = (at: number, value: number): Buffer => {
    const copy = Buffer.from(bad)
    copy.writeUInt32LE(value, at)
    return copy
  }
  const offset = one.length
  const cases: [string, Buffer, RegExp][] = [
    ['a struct outside the message', changed(36, 0xffff), /a pointer leads to bytes/],
    ['a capability', changed(32, 3), /leads to no struct or list/],
    ['a segment that is not there', changed(32, 2), /segment|-/i],
    ['too many segments', changed(0, 0xfffffffe), /4294967295 segments/],
    ['a size beyond all limits', changed(4, 0xffffffff), /bytes; 67108864 are accepted/],
    ['a size that is too large', changed(4, 7 + bad.length), /./],
    ['a size that is too small', changed(4, 2), /leads to/],
    ['no root', changed(12, 0), /it is no event/],
    ['garbage', Buffer.from('garbage garbage garbage'), /./],
  ]
  for (const [name, bytes, reason] of cases) {
    const { times, damage } = await read(one, bytes, two)
    t.strictSame(times, [1n, 9n], name)
    t.match(damage, [{ kind: 'message', offset, bytes: bytes.length, reason }], name)
  }
})

t.test('hostile messages are refused in little time', async t => {
  const good = carState(1n, 1, 1)
  const bombs: Record<string, Buffer> = {
    'a list of 536 million elements without size': event(5, 2n, listPointer(0, 0, 2 ** 29 - 1), []),
    'a list of 134 million structs without size': event(
      5,
      2n,
      listPointer(0, 7, 0),
      structPointer(2 ** 29 - 1, 0, 0),
    ),
    'structs that contain themselves': event(22, 2n, structPointer(-1, 0, 1), []),
    'pointers that share what they lead to': event(
      5,
      2n,
      listPointer(0, 6, 100),
      Array.from({ length: 100 }, (_, i) => listPointer(99 - i, 2, 800))
        .flat()
        .concat(new Array(200).fill(0)),
    ),
    'nested 100 deep': event(
      22,
      2n,
      structPointer(0, 0, 1),
      Array.from({ length: 100 }, () => structPointer(0, 0, 1)).flat(),
    ),
  }
  for (const [name, bomb] of Object.entries(bombs)) {
    const started = performance.now()
    const { times, damage } = await read(good, bomb, good)
    t.strictSame(times, [1n, 1n], name)
    t.match(damage, [{ kind: 'message', offset: good.length, bytes: bomb.length }], name)
    t.ok(performance.now() - started < 5000, name)
  }
  const zeros = await read(good, Buffer.alloc(1 << 24), good)
  t.strictSame(zeros.times, [1n, 1n])
  t.match(zeros.damage, [{ bytes: 1 << 24 }], 'one report of a long stretch')
})

t.test('a file that is no log', async t => {
  for (const bytes of [Buffer.from('{"not": "a log"}'), Buffer.alloc(100), Buffer.from('BZx')]) {
    const file = fileOf(bytes)
    const error = (await summarizeLog(file).catch(error => error)) as SparkError
    if (bytes.length > 15) t.match(error, { code: 'ERR_FORMAT', message: / is no log of openpilot: / })
  }
})

t.test('a summary', async t => {
  const summary = await summarizeLog(fileOf(drive(2), can(0n, 1, [1], 0)))
  t.strictSame(summary, {
    events: 41,
    counts: { can: 21, carState: 20 },
    start: 0n,
    end: 2_900_000_001n,
    damage: [],
    damaged: 0,
  })
})
