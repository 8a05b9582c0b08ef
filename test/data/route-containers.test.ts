// Compressed logs: both decoders of Zstandard, bzip2, damage, and files that are made to fill the memory or to never end.
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import zlib from 'node:zlib'
import { type LogDamage, readLog } from 'dgx-spark'
import t from 'tap'
import { type Gap, Inflow } from '#lib/data/route/compressed.js'
import { withTimeLimit } from '#lib/data/route/time-limit.js'
import { fzstdDecoder, nodeDecoder, unzstd } from '#lib/data/route/zstd.js'
import { bzip2Bomb, bzip2Log, zstdLog } from '../fixtures/route/compressed-logs.js'
import { drive } from '../fixtures/route/write-log.js'

const file = path.join(t.testdir({}), 'log')

async function read(...parts: Uint8Array[]): Promise<{ events: number; damage: readonly LogDamage[] }> {
  writeFileSync(file, Buffer.concat(parts))
  const log = readLog(file)
  let events = 0
  for await (const { value } of log) if (value !== undefined) events++
  return { events, damage: [...log.damage] }
}

async function* bytewise(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (const byte of bytes) yield Uint8Array.of(byte)
}

/** A header of a frame, and blocks of 128 KiB that each repeat a byte. */
function zstdFrame(window: number, blocks: number, byte = 0): Buffer {
  const header = Buffer.of(0x28, 0xb5, 0x2f, 0xfd, 0, window)
  const body = Array.from({ length: blocks }, (_, i) => {
    const block = ((2 ** 17) << 3) | (1 << 1) | Number(i === blocks - 1)
    return [block & 255, (block >> 8) & 255, block >> 16, byte]
  })
  return Buffer.concat([header, Buffer.from(body.flat())])
}

t.test('one stream after another, in any pieces', async t => {
  for (const [name, bytes] of Object.entries({ bzip2Log, zstdLog })) {
    t.same(await read(bytes), { events: 60, damage: [] }, name)
    t.same(await read(bytes, bytes), { events: 120, damage: [] }, `${name} twice`)
  }
  const skippable = Buffer.concat([Buffer.of(0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0), Buffer.from('abc')])
  t.same(await read(skippable, zstdLog, skippable), { events: 60, damage: [] }, 'frames of others')
  const pieces: Buffer[] = []
  for await (const piece of unzstd(new Inflow(bytewise(zstdLog))))
    pieces.push(Buffer.from(piece as Uint8Array))
  t.ok(Buffer.concat(pieces).equals(drive(3)), 'byte by byte')
})

t.test('decoders of Zstandard', async t => {
  const { createZstdDecompress } = zlib as { createZstdDecompress?: Parameters<typeof nodeDecoder>[0] }
  const frame = zstdFrame(0x50, 2, 7)
  const test = async (open: () => ReturnType<typeof fzstdDecoder> | undefined): Promise<void> => {
    const decode = open()!
    const made: Uint8Array[] = []
    for (const [start, end] of [
      [0, 6],
      [6, 10],
      [10, 14],
    ])
      made.push(...(await decode(frame.subarray(start, end), end === frame.length)))
    t.ok(Buffer.concat(made).equals(Buffer.alloc(2 ** 18, 7)), 'all blocks')
    await t.rejects(open()!(Buffer.alloc(20, 255), false), 'damage is an error')
  }
  await test(fzstdDecoder)
  if (createZstdDecompress) await test(() => nodeDecoder(createZstdDecompress))
  else t.comment(`Node.js ${process.version} has no zstd of its own: fzstd only`)
})

t.test('damage', async t => {
  for (const [name, bytes] of Object.entries({ bzip2Log, zstdLog })) {
    t.match(await read(bytes.subarray(0, 100)), { events: 0, damage: [{ kind: 'truncated' }] }, name)
  }
  const flipped = Buffer.from(bzip2Log)
  flipped[300]! ^= 4
  t.match(await read(flipped, bzip2Log), { events: 60, damage: [{ kind: 'compression', reason: /bzip2/ }] })
  t.match(await read(bzip2Log, Buffer.from('rest')), {
    events: 60,
    damage: [{ kind: 'compression', offset: 4080, reason: /begins no bzip2 stream/ }],
  })
  t.match(await read(zstdLog, Buffer.from('rest')), {
    events: 60,
    damage: [{ kind: 'compression', offset: 4080, reason: /begins no Zstandard frame/ }],
  })
})

t.test('bombs are refused', async t => {
  for (const [name, bytes] of Object.entries({
    bzip2: bzip2Bomb,
    'bzip2 behind a log': Buffer.concat([bzip2Log, bzip2Bomb]),
    zstd: zstdFrame(0x50, 4000),
  })) {
    await t.rejects(read(bytes), { code: 'ERR_FORMAT', message: /is refused: .* become more than/ }, name)
  }
  await t.rejects(read(zstdFrame(0xff, 1)), { message: /has a window of .* bytes; 134217728 are accepted/ })
  const single = Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 1, 0, 0, 0])
  await t.rejects(read(single), { message: /has a window of 4294967296 bytes/ })
  const gap: (Gap | Uint8Array)[] = []
  for await (const piece of unzstd(new Inflow(bytewise(zstdFrame(0x50, 1).fill(0xff, 6))))) gap.push(piece)
  t.match(gap, [{ reason: /invalid header/ }])
})

t.test('a decoder that never ends is stopped', async t => {
  const forever = (): void => {
    for (;;);
  }
  t.throws(() => withTimeLimit(30, forever), { code: 'ERR_SCRIPT_EXECUTION_TIMEOUT' })
  t.equal(
    withTimeLimit(1000, () => 3),
    3,
  )
  t.throws(() => withTimeLimit(1000, () => JSON.parse('{')), SyntaxError)
})
