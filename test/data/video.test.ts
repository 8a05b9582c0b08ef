// Videos: their frames as they were encoded, what is damaged, what is no video, and no decoder.
import { execFile } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { readVideo, type VideoBatch } from 'dgx-spark'
import t from 'tap'
import { parseY4mHeader, Y4mFrames } from '#lib/data/y4m.js'
import { randomGenerator } from '../fixtures/values/random.js'
import { drawFrames, encodeVideo, noFfmpeg } from '../fixtures/video/encode.js'

const folder = t.testdir({})
const run = promisify(execFile)

async function framesOf(file: string, batch?: number): Promise<VideoBatch[]> {
  const all: VideoBatch[] = []
  for await (const each of readVideo(file, batch === undefined ? {} : { batch })) all.push(each)
  return all
}
const bytesOf = (batches: readonly VideoBatch[]): Buffer => Buffer.concat(batches.map(({ data }) => data))

t.test('frames are those that were encoded', { skip: noFfmpeg }, async t => {
  const [height, width, count] = [64, 96, 21]
  const frames = drawFrames(count, height, width)
  for (const name of ['a.hevc', 'b.ts']) {
    const file = path.join(folder, name)
    encodeVideo(file, frames, height, width)
    const batches = await framesOf(file)
    t.strictSame(
      batches.map(each => [each.first, each.count]),
      [
        [0, 8],
        [8, 8],
        [16, 5],
      ],
    )
    t.match(batches[0], { height, width, frameBytes: (height * width * 3) / 2 })
    t.ok(bytesOf(batches).equals(frames), name)
    t.ok(bytesOf(await framesOf(file, 1)).equals(frames), `${name}, one at a time`)
  }
})

t.test('the full range of values is kept, and so are odd sizes', { skip: noFfmpeg }, async t => {
  const [height, width] = [48, 64]
  const frames = drawFrames(3, height, width)
  frames[0] = 0
  frames[1] = 255
  const full = path.join(folder, 'full.hevc')
  encodeVideo(full, frames, height, width, 'yuvj420p')
  t.ok(bytesOf(await framesOf(full)).equals(frames))
})

t.test('a loop that ends early ends the decoder', { skip: noFfmpeg }, async t => {
  const file = path.join(folder, 'long.ts')
  encodeVideo(file, drawFrames(60, 64, 96), 64, 96)
  for await (const { first } of readVideo(file, { batch: 2 })) if (first >= 4) break
  t.pass('it ended')
})

t.test('a recording that was cut off, and damaged ones', { skip: noFfmpeg, timeout: 120_000 }, async t => {
  const [height, width] = [64, 96]
  const frames = drawFrames(20, height, width)
  const file = path.join(folder, 'whole.hevc')
  encodeVideo(file, frames, height, width)
  const bytes = readFileSync(file)
  const cut = path.join(folder, 'cut.hevc')
  writeFileSync(cut, bytes.subarray(0, bytes.length * 0.6))
  const found = bytesOf(await framesOf(cut))
  t.ok(found.length >= frames.length / 4 && found.length < frames.length)
  const first = (5 * height * width * 3) / 2
  t.ok(found.subarray(0, first).equals(frames.subarray(0, first)), 'what is there is right')

  const random = randomGenerator(5)
  for (let i = 0; i < 8; i++) {
    const broken = Uint8Array.from(bytes)
    for (let k = 0; k < 20; k++)
      broken[Math.floor(random() * broken.length)]! ^= 1 << Math.floor(8 * random())
    const name = path.join(folder, 'broken.hevc')
    writeFileSync(name, broken)
    const outcome = await framesOf(name).catch(error => error)
    t.ok(Array.isArray(outcome) || outcome.code === 'ERR_FORMAT', `${outcome}`)
  }
})

t.test('what is no video', { skip: noFfmpeg }, async t => {
  const text = path.join(folder, 'text.hevc')
  writeFileSync(text, 'not a video')
  await t.rejects(framesOf(text), { code: 'ERR_FORMAT', message: /text\.hevc could not be decoded: / })
  const list = path.join(folder, 'list.mp4')
  writeFileSync(list, '#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n')
  await t.rejects(framesOf(list), { code: 'ERR_FORMAT' }, 'nothing is fetched')
})

t.test('files that are not there, arguments', async t => {
  await t.rejects(framesOf(path.join(folder, 'none.ts')), { code: 'ERR_IO', message: /none\.ts/ })
  await t.rejects(framesOf(`${t.testdir({ 'a.ts': {} })}/a.ts`), { code: 'ERR_IO', message: /folder/ })
  t.throws(() => readVideo('list.m3u8'), { code: 'ERR_ARGUMENT', message: /file must be a video: \.hevc, / })
  t.throws(() => readVideo(5 as never), { code: 'ERR_ARGUMENT', message: /file must be/ })
  t.throws(() => readVideo('a.ts', { batch: 0 }), { code: 'ERR_ARGUMENT', message: /options\.batch/ })
  t.throws(() => readVideo('a.ts', { bach: 1 } as never), { code: 'ERR_ARGUMENT', message: /bach/ })
})

t.test('without ffmpeg', async t => {
  const file = path.join(folder, 'any.ts')
  writeFileSync(file, 'x')
  const program = `
import { readVideo } from 'dgx-spark'
try { for await (const _ of readVideo(${JSON.stringify(file)})); } catch (error) { console.log(error.code, error.message) }`
  const { stdout } = await run(process.execPath, ['--input-type=module', '-e', program], {
    env: { ...process.env, DGX_SPARK_FFMPEG: '/nowhere/ffmpeg' },
  })
  t.match(stdout, /^ERR_UNSUPPORTED \/nowhere\/ffmpeg was not found: it decodes videos\. Install it \(.+\)/)
})

t.test('frames of a pipe, in pieces of any size', async t => {
  const stream = Buffer.concat([
    Buffer.from('YUV4MPEG2 W3 H2 F20:1 Ip A1:1 C420jpeg XYSCSS=420JPEG\n'),
    ...[1, 2, 3].flatMap(value => [
      Buffer.from(value === 2 ? 'FRAME Ip\n' : 'FRAME\n'),
      Buffer.alloc(10, value),
    ]),
  ])
  for (const step of [1, 2, 5, 7, 1000]) {
    const header = parseY4mHeader(stream, 'pipe')!
    t.strictSame(header.size, { height: 2, width: 3, frameBytes: 10 })
    const frames = new Y4mFrames(header.size, 2, 'pipe')
    const found = []
    for (let at = header.bytes; at < stream.length; at += step)
      found.push(...frames.take(stream.subarray(at, at + step)))
    const rest = frames.flush()
    t.strictSame(
      [...found, ...(rest ? [rest] : [])].map(({ data, count }) => [count, ...data]),
      [
        [2, ...Array(10).fill(1), ...Array(10).fill(2)],
        [1, ...Array(10).fill(3)],
      ],
    )
  }
  t.equal(parseY4mHeader(Buffer.from('YUV4MPEG2 W3'), 'pipe'), null)
  for (const line of [
    'YUV4MPEG2 W3 H2 C444\n',
    'YUV4MPEG2 W0 H2\n',
    'YUV4MPEG2 W99999999 H2\n',
    'x\n',
    'x'.repeat(2000),
  ])
    t.throws(
      () => parseY4mHeader(Buffer.from(line), 'pipe'),
      { code: 'ERR_FORMAT', message: /pipe/ },
      line.slice(0, 20),
    )
  const frames = new Y4mFrames({ height: 2, width: 2, frameBytes: 6 }, 1, 'pipe')
  t.throws(() => frames.take(Buffer.from('FRUME\n')), { code: 'ERR_FORMAT', message: /out of step/ })
})
