// Training data from files: what is read, what is left out and said, what is refused.
import { mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { gzipSync } from 'node:zlib'
import { encode, writeSafetensors } from 'dgx-spark'
import t from 'tap'
import { parseIdx } from '#lib/data/idx.js'
import { openData } from '#lib/data/open.js'
import { TableDataset } from '#lib/data/table.js'
import { parseNpy } from '#lib/io/npy.js'
import { noGolden } from '../fixtures/values/golden-bytes.js'
import { randomGenerator } from '../fixtures/values/random.js'

/** An IDX file: type code, sizes, big-endian elements. */
const idx = (type: number, sizes: number[], elements: Uint8Array): Buffer => {
  const header = Buffer.alloc(4 + 4 * sizes.length)
  header[2] = type
  header[3] = sizes.length
  sizes.forEach((size, axis) => {
    header.writeUInt32BE(size, 4 + 4 * axis)
  })
  return Buffer.concat([header, elements])
}

/** A .npy file as NumPy writes it. */
const npy = (descr: string, shape: number[], elements: ArrayBufferView): Buffer => {
  const sizes = shape.length === 1 ? `${shape[0]},` : shape.join(', ')
  const text = `{'descr': '${descr}', 'fortran_order': False, 'shape': (${sizes}), }`
  const header = Buffer.from(`${text.padEnd(64 - 10 - 1 + 64)}\n`)
  const prefix = Buffer.from('\x93NUMPY\x01\x00\x00\x00', 'latin1')
  prefix.writeUInt16LE(header.length, 8)
  return Buffer.concat([
    prefix,
    header,
    Buffer.from(elements.buffer, elements.byteOffset, elements.byteLength),
  ])
}

t.test('IDX', async t => {
  t.same(parseIdx(idx(8, [2, 3], Uint8Array.of(1, 2, 3, 4, 5, 255))), {
    shape: [2, 3],
    data: Uint8Array.of(1, 2, 3, 4, 5, 255),
  })
  t.same(parseIdx(idx(11, [2], Uint8Array.of(1, 0, 255, 255))).data, Int16Array.of(256, -1))
  t.same(parseIdx(idx(13, [1], Uint8Array.of(0x3f, 0x80, 0, 0))).data, Float32Array.of(1))
  for (const broken of [
    Buffer.of(),
    Buffer.of(0, 0, 8),
    Buffer.of(1, 0, 8, 1, 0, 0, 0, 0),
    idx(7, [1], Uint8Array.of(1)),
    idx(8, [], Uint8Array.of()),
    idx(8, [3], Uint8Array.of(1, 2)),
    idx(8, [0xffffffff, 0xffffffff, 0xffffffff], Uint8Array.of(1, 2)),
    idx(12, [1], Uint8Array.of(1, 2, 3, 4, 5)),
  ]) {
    t.throws(() => parseIdx(broken, 'file'), { code: 'ERR_FORMAT', message: /^file is not an IDX file/ })
  }
})

t.test('broken bytes are an error with a code, never a crash', async t => {
  const random = randomGenerator(9)
  const whole = [idx(8, [2, 3], new Uint8Array(6)), npy('<f4', [2, 3], new Float32Array(6))]
  for (let round = 0; round < 600; round++) {
    const bytes = Buffer.from(whole[round % 2]!)
    for (let i = 0; i < 3; i++) bytes[Math.floor(random() * bytes.length)] = Math.floor(random() * 256)
    const parse = round % 2 === 0 ? parseIdx : parseNpy
    try {
      parse(bytes.subarray(0, Math.floor(random() * (bytes.length + 20))))
    } catch (error) {
      if (!/^ERR_(FORMAT|DTYPE|UNSUPPORTED)$/.test((error as { code: string }).code)) t.fail(String(error))
    }
  }
})

t.test('a folder of digits', async t => {
  const folder = t.testdir()
  const images = idx(
    8,
    [3, 2, 2],
    Uint8Array.from({ length: 12 }, (_, i) => i * 20),
  )
  writeFileSync(path.join(folder, 'train-images-idx3-ubyte.gz'), gzipSync(images))
  writeFileSync(path.join(folder, 'train-labels-idx1-ubyte'), idx(8, [3], Uint8Array.of(7, 12, 0)))
  writeFileSync(path.join(folder, 't10k-images-idx3-ubyte'), 'not read')
  writeFileSync(path.join(folder, 't10k-labels-idx1-ubyte'), 'not read')
  const rules = {
    images: { name: 'x', shape: [1, 2, -1], dtype: 'f32', scale: 1 / 255, offset: -0.5 },
    labels: { name: 'target', dtype: 'i32', classes: 10 },
  } as const
  const data = (await openData(folder, rules)) as TableDataset
  t.equal(data.size, 2)
  t.match(data.bad, [
    { source: /train-images-idx3-ubyte.gz, row 1$/, reason: 'labels is 12; there are 10 classes' },
  ])
  const { x, target } = data.read([1])
  t.same(x!.shape, [1, 1, 2, 2])
  t.same(
    x!.data,
    Float32Array.from([160, 180, 200, 220], pixel => pixel / 255 - 0.5),
  )
  t.same(target!.data, Int32Array.of(0))
  await t.rejects(openData(folder, { images: { shape: [3, -1] } }), {
    code: 'ERR_SHAPE',
    message: /\[2, 2\].*\[3, -1\]/,
  })
})

t.test('the shared digits', { skip: noGolden }, async t => {
  const data = await openData(path.join(process.env.DGX_SPARK_TEST_DATA!, 'mnist'))
  t.equal((data as TableDataset).size, 10000)
  t.same((data as TableDataset).read([0]).images!.shape, [1, 28, 28])
})

t.test('folders of npy and safetensors files', async t => {
  const folder = t.testdir()
  const [arrays, batches] = ['arrays', 'batches'].map(name => path.join(folder, name)) as [string, string]
  for (const name of [arrays, batches]) mkdirSync(name)
  writeFileSync(path.join(arrays, 'x.npy'), npy('<f4', [2, 3], Float32Array.of(1, 2, 3, 4, Number.NaN, 6)))
  writeFileSync(path.join(arrays, 'target.npy'), npy('<f8', [2], Float64Array.of(1, 2)))
  writeFileSync(path.join(arrays, 'half.npy'), npy('<f2', [2], encode(Float32Array.of(1.5, -2), 'f16')))
  const table = (await openData(arrays, { target: { dtype: 'f32' } })) as TableDataset
  t.match([table.size, table.bad], [1, [{ source: /arrays, row 1$/, reason: 'x[1] is NaN' }]])
  t.same(table.read([0]).target!.data, Float32Array.of(1))
  t.same(table.read([0]).half!.data, Float32Array.of(1.5))
  const batch = (rows: number) => ({
    x: { dtype: 'F32' as const, shape: [rows, 2], data: new Float32Array(2 * rows) },
  })
  await writeSafetensors(path.join(batches, 'a.safetensors'), batch(2))
  await writeSafetensors(path.join(batches, 'b.safetensors'), batch(3))
  await writeSafetensors(path.join(batches, 'c.safetensors'), { y: batch(1).x })
  writeFileSync(path.join(batches, 'd.safetensors'), 'broken')
  const joined = (await openData(batches)) as TableDataset
  t.equal(joined.size, 5)
  t.match(joined.bad, [{ source: /c.safetensors/, reason: /no field 'x'/ }, { source: /d.safetensors/ }])
  t.equal(((await openData(path.join(batches, 'a.safetensors'))) as TableDataset).size, 2)
})

t.test('labels that are no integers are bad rows', async t => {
  const folder = t.testdir()
  const x = { dtype: 'F32', shape: [4, 2], data: new Float32Array(8) } as const
  const labels = { dtype: 'F32', shape: [4], data: Float32Array.of(1, 0.5, Number.NaN, 3) } as const
  await writeSafetensors(
    path.join(folder, 'a.safetensors'),
    new Map<string, typeof x | typeof labels>([
      ['x', x],
      ['labels', labels],
    ]),
  )
  const data = await openData(folder, { labels: { name: 'target', dtype: 'i32', classes: 3 } })
  t.ok(data instanceof TableDataset)
  const { size, bad } = data as TableDataset
  t.equal(size, 1)
  t.match(
    bad.map(({ reason }) => reason),
    [/labels\[0\] is 0.5; i32 holds integers/, /labels\[0\] is NaN$/, /is 3; there are 3/],
  )
})

t.test('modules', async t => {
  const folder = t.testdir({
    'stream.mjs': 'export default [{ x: { shape: [1], data: new Float32Array(1) } }]',
    'epochs.mjs':
      'export default function* (epoch) { yield { x: { shape: [1], data: Float32Array.of(epoch) } } }',
    'wrong.mjs': 'export default 3',
  })
  for (const [name, expected] of [
    ['stream.mjs', 0],
    ['epochs.mjs', 4],
  ] as const) {
    const stream = (await openData(path.join(folder, name))) as (
      epoch: number,
    ) => Iterable<Record<string, { data: Float32Array }>>
    t.same(
      [...stream(4)].map(({ x }) => x!.data[0]),
      [expected],
    )
  }
  await t.rejects(openData(path.join(folder, 'wrong.mjs')), { code: 'ERR_FORMAT', message: /default export/ })
})

t.test('what is refused', async t => {
  await t.rejects(openData(path.join(t.testdir(), 'nowhere')), { code: 'ERR_IO' })
  await t.rejects(openData(t.testdir()), { code: 'ERR_FORMAT', message: /no training data/ })
  const x = { shape: [1, 1], data: Float32Array.of(Number.NaN) }
  t.throws(() => new TableDataset([{ source: 'f', fields: { x } }]), {
    code: 'ERR_FORMAT',
    message: /f, row 0: x\[0\] is NaN/,
  })
  const fields = [2, 3].map(cols => ({ x: { shape: [1, cols], data: new Float32Array(cols) } }))
  t.throws(() => new TableDataset(fields.map(fields => ({ source: 'f', fields }))), { code: 'ERR_SHAPE' })
})
