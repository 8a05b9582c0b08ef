// Names of routes and segments; the segments in folders and lists.
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { findRoutes, formatRouteName, logOf, parseRouteName, readLog, videoOf } from 'dgx-spark'
import t from 'tap'
import { carState } from '../fixtures/route/write-log.js'

const dongle = 'a2a0ccea32023010'
const log = '2023-07-27--13-01-19'

const all = t.testdir({})
let folders = 0

/** A folder with empty files. */
function folderOf(files: readonly string[]): string {
  const folder = path.join(all, String(folders++))
  mkdirSync(folder)
  for (const file of files) {
    mkdirSync(path.join(folder, path.dirname(file)), { recursive: true })
    writeFileSync(path.join(folder, file), '')
  }
  return folder
}

t.test('names', async t => {
  for (const text of [
    `${dongle}|${log}--3`,
    `${dongle}/${log}/3`,
    `${dongle}|${log}/3`,
    `${dongle}_${log}--3`,
  ]) {
    t.strictSame(parseRouteName(text), { dongle, log, segment: 3 }, text)
  }
  t.strictSame(parseRouteName(`${dongle}|${log}`), { dongle, log, segment: null })
  t.strictSame(parseRouteName(`${log}--12`), { dongle: null, log, segment: 12 })
  const numbered = { dongle, log: '00000123--0a1b2c3d4e', segment: 0 }
  t.strictSame(parseRouteName(`${dongle}/00000123--0a1b2c3d4e/0`), numbered)
  t.equal(formatRouteName(numbered), `${dongle}|00000123--0a1b2c3d4e--0`)
  for (const text of [
    '',
    'rlog',
    dongle,
    `${dongle}|2023-07-27`,
    `${dongle}|${log}--`,
    `x${dongle}|${log}`,
    `${log}--3--4`,
  ])
    t.equal(parseRouteName(text), null, text)
})

t.test('forms of folders', async t => {
  const forms = {
    'segments with the dongle': [0, 1, 3].map(i => `${dongle}_${log}--${i}/rlog.zst`),
    'folders of dongle, log and segment': [0, 1, 3].map(i => `${dongle}/${log}/${i}/rlog.zst`),
    'as comma2k19': [0, 1, 3].map(i => `${dongle}|${log}/${i}/rlog.zst`),
    'as comma_car_segments': [0, 1, 3].map(i => `segments/${dongle}/${log}/${i}/rlog.zst`),
    'downloads in one folder': [0, 1, 3].map(i => `${dongle}_${log}--${i}--rlog.zst`),
  }
  for (const [name, files] of Object.entries(forms)) {
    const routes = await findRoutes(folderOf(files))
    t.match(
      routes,
      [{ name: `${dongle}|${log}`, missing: [2], segments: [{ number: 0 }, { number: 1 }, { number: 3 }] }],
      name,
    )
    t.equal(routes[0]?.segments[2]?.name, `${dongle}|${log}--3`)
  }
})

t.test('files of a segment', async t => {
  const names = ['rlog.bz2', 'rlog.zst', 'qlog', 'qcamera.ts', 'fcamera.hevc', 'notes.txt']
  const folder = folderOf([...names.map(name => `${log}--10/${name}`), `${log}--9/qlog.zst`, 'README'])
  const [route] = await findRoutes(folder)
  const [nine, ten] = route!.segments
  t.strictSame([nine?.number, ten?.number], [9, 10], 'in the order of numbers')
  const base = (file: string): string => path.basename(file)
  t.strictSame(Object.fromEntries(Object.entries(ten!.files).map(([kind, file]) => [kind, base(file)])), {
    rlog: 'rlog.zst',
    qlog: 'qlog',
    qcamera: 'qcamera.ts',
    fcamera: 'fcamera.hevc',
  })
  t.equal(base(logOf(ten!)), 'rlog.zst')
  t.equal(base(logOf(ten!, 'qlog')), 'qlog')
  t.equal(base(logOf(nine!)), 'qlog.zst', 'what there is')
  t.equal(base(videoOf(ten!, 'qcamera')), 'qcamera.ts')
  t.throws(() => videoOf(ten!, 'ecamera'), {
    code: 'ERR_FORMAT',
    message: /has no ecamera: it has fcamera, qcamera/,
  })
  t.throws(() => videoOf(nine!, 'fcamera'), { message: /comma_car_segments.*need a route with video/ })
  t.throws(() => logOf({ name: 'x', number: 0, files: { qcamera: 'q' } }), { message: /has no log/ })
})

t.test('lists, single files, several routes', async t => {
  const other = '2024-01-01--00-00-00'
  const folder = folderOf([`${log}--0/rlog`, `${log}--1/rlog`, `${other}--5/rlog`, 'drive.raw'])
  writeFileSync(path.join(folder, 'list.txt'), `# mine\n${log}--1\n\n${other}--5/rlog\n`)
  t.match(await findRoutes(path.join(folder, 'list.txt')), [
    { name: log, segments: [{ number: 1 }], missing: [] },
    { name: other, segments: [{ number: 5 }] },
  ])
  t.match(await findRoutes([`${log}--1`, `${log}--0`].map(name => path.join(folder, name))), [
    { segments: [{ number: 0 }, { number: 1 }] },
  ])
  t.match(
    await findRoutes(path.join(folder, 'drive.raw')),
    [{ segments: [{ name: 'drive.raw' }] }],
    'any log',
  )
  await t.rejects(findRoutes([]), { code: 'ERR_ARGUMENT' })
  await t.rejects(findRoutes(path.join(folder, 'missing')), { code: 'ERR_IO' })
  await t.rejects(findRoutes(folderOf([])), { code: 'ERR_FORMAT', message: /no segments/ })
  const twice = folderOf([`a/${log}--0/rlog`, `b/${log}--0/rlog`])
  await t.rejects(findRoutes(twice), { code: 'ERR_FORMAT', message: /are both rlog of segment/ })
  symlinkSync('..', path.join(twice, 'a', 'loop'))
  await t.resolves(findRoutes(path.join(twice, 'a')), 'links to folders are not followed')
})

t.test('events of several segments, in order', async t => {
  const folder = folderOf([])
  for (const i of [0, 1]) {
    mkdirSync(path.join(folder, `${log}--${i}`))
    writeFileSync(path.join(folder, `${log}--${i}`, 'rlog'), carState(BigInt(i), i, 0))
  }
  writeFileSync(
    path.join(folder, `${log}--1`, 'rlog'),
    Buffer.concat([carState(1n, 1, 0), Buffer.from('rest')]),
  )
  const [route] = await findRoutes(folder)
  const events = readLog(route!.segments.map(segment => logOf(segment)))
  const times: bigint[] = []
  for await (const { logMonoTime } of events) times.push(logMonoTime)
  t.strictSame(times, [0n, 1n])
  t.match(events.damage, [{ kind: 'truncated', file: /--1.rlog$/ }])
})
