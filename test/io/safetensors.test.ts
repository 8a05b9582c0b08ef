import { execFileSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import {
  parseSafetensors,
  readSafetensors,
  SparkError,
  serializeSafetensors,
  Tensor,
  writeSafetensors,
} from 'dgx-spark'
import t, { type Test } from 'tap'
import { noGolden } from '../fixtures/values/golden-bytes.js'
import { randomGenerator } from '../fixtures/values/random.js'

const data = process.env.DGX_SPARK_TEST_DATA
const folder = mkdtempSync(path.join(tmpdir(), 'dgx-spark-safetensors-'))
t.teardown(() => rmSync(folder, { recursive: true }))

/** A file with the given header text and data bytes. */
function fileOf(header: string | object, dataBytes: Uint8Array | number = 0): Buffer {
  const json = Buffer.from(typeof header === 'string' ? header : JSON.stringify(header))
  const length = Buffer.alloc(8)
  length.writeBigUInt64LE(BigInt(json.byteLength))
  return Buffer.concat([length, json, typeof dataBytes === 'number' ? Buffer.alloc(dataBytes) : dataBytes])
}

const entry = (begin: number, end: number, dtype = 'F32', shape = [(end - begin) / 4]) => ({
  dtype,
  shape,
  data_offsets: [begin, end],
})

const refused = (test: Test, bytes: Uint8Array, message: RegExp) =>
  test.throws(() => parseSafetensors(bytes), { code: 'ERR_FORMAT', message })

t.test('writes what it reads', async t => {
  const file = path.join(folder, 'all.safetensors')
  const x = Tensor.from([[1, 2, 3]])
  const big = { dtype: 'I64', shape: [2], data: new BigInt64Array([1n, -2n]) } as const
  const scalar = Tensor.from(5)
  const empty = Tensor.zeros([0, 7], 'bf16')
  const flag = { dtype: 'BOOL', shape: [3], data: new Uint8Array([1, 0, 1]) } as const
  await writeSafetensors(
    file,
    { x, big, flag, scalar, empty, __proto__x: x },
    { metadata: { a: '1', b: 'é' } },
  )
  const read = await readSafetensors(file)
  t.strictSame(
    [...read.metadata],
    [
      ['a', '1'],
      ['b', 'é'],
    ],
  )
  t.strictSame(read.tensors.get('big'), { ...big })
  t.strictSame(read.tensors.get('flag'), { ...flag })
  t.strictSame(read.tensors.get('x'), { dtype: 'F32', shape: [1, 3], data: x.data })
  t.strictSame(read.tensors.get('scalar')?.shape, [])
  t.strictSame(read.tensors.get('empty'), { dtype: 'BF16', shape: [0, 7], data: new Uint16Array(0) })
  t.strictSame(readdirSync(folder), ['all.safetensors'], 'no temporary file is left')
  const bytes = readFileSync(file)
  t.equal(Number(bytes.readBigUInt64LE()) % 8, 0, 'data begins at a multiple of 8')
  t.strictSame(parseSafetensors(bytes), read)
})

t.test('names that are properties of every object', t => {
  const names = ['__proto__', 'constructor', 'toString', 'hasOwnProperty']
  const one = Tensor.from([1])
  const bytes = Buffer.concat(serializeSafetensors(names.map(name => [name, one] as const)))
  const { tensors } = parseSafetensors(bytes)
  t.strictSame([...tensors.keys()].sort(), [...names].sort())
  t.equal(({} as { dtype?: string }).dtype, undefined, 'the prototype of all objects is untouched')
  t.end()
})

t.test('misaligned data are copied', t => {
  const values = new Float64Array([1.5, -2.5])
  const bytes = fileOf(
    { pad: entry(0, 3, 'U8', [3]), x: entry(3, 19, 'F64', [2]) },
    Buffer.concat([Buffer.from([7, 8, 9]), Buffer.from(values.buffer)]),
  )
  const shifted = Buffer.concat([Buffer.alloc(1), bytes]).subarray(1)
  t.strictSame(parseSafetensors(shifted).tensors.get('x')?.data, values)
  t.end()
})

t.test('refuses what the format forbids', t => {
  refused(t, Buffer.alloc(7), /7 bytes are too few/)
  refused(t, fileOf({}).subarray(0, 9), /truncated or not safetensors/)
  refused(t, Buffer.alloc(32, 0xff), /limit is 100000000/)
  refused(t, fileOf('[]'), /does not begin with '{'/)
  refused(t, fileOf(' {}'), /does not begin with '{'/)
  refused(t, fileOf('{"x"'), /not JSON/)
  refused(t, fileOf(''), /not JSON/)
  refused(t, Buffer.concat([fileOf('{"\u00e9":1}').subarray(0, 10), Buffer.alloc(30, 0xc3)]), /not JSON/)
  refused(t, fileOf(`{"x":${'['.repeat(20)}${']'.repeat(20)}}`), /nested deeper/)
  refused(t, fileOf({ x: 5 }), /'x' is not described by an object/)
  refused(t, fileOf({ x: [1] }), /'x' is not described by an object/)
  refused(t, fileOf({ x: entry(0, 4, 'F33', [1]) }, 4), /'x' has the unknown dtype "F33"/)
  refused(t, fileOf({ x: entry(0, 4, 'toString', [1]) }, 4), /'x' has the unknown dtype/)
  refused(t, fileOf({ x: entry(0, 4, 'F32', [-1]) }, 4), /'x' has the shape \[-1\]/)
  refused(t, fileOf({ x: entry(0, 4, 'F32', [1.5]) }, 4), /'x' has the shape \[1.5\]/)
  refused(t, fileOf({ x: entry(0, 4, 'F32', [2]) }, 4), /'x' is F32 \[2\], which does not fit its 4 bytes/)
  refused(t, fileOf({ x: entry(0, 4, 'F32', [2 ** 40, 2 ** 40]) }, 4), /does not fit/)
  refused(t, fileOf({ x: { ...entry(0, 4), data_offsets: [4, 0] } }, 4), /not \[begin, end\]/)
  refused(t, fileOf({ x: { ...entry(0, 4), data_offsets: [0] } }, 4), /not \[begin, end\]/)
  refused(t, fileOf({ x: entry(0, 8) }, 4), /'x' ends at byte 8, but the file holds 4/)
  refused(t, fileOf({ x: entry(0, 4), y: entry(0, 4) }, 4), /'y' begins at byte 0 instead of 4: it overlaps/)
  refused(t, fileOf({ x: entry(0, 4), y: entry(8, 12) }, 12), /'y' .* leaves a hole/)
  refused(t, fileOf({ x: entry(0, 4) }, 8), /cover 4 of 8 bytes/)
  refused(t, fileOf('{"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"x":1}'), /key 'x' twice/)
  refused(t, fileOf('{"x":{"dtype":"F32","dtype":"F64","shape":[0],"data_offsets":[0,0]}}'), /'dtype' twice/)
  refused(t, fileOf('{"\\u0078":1,"x":1}'), /key 'x' twice/)
  refused(t, fileOf({ __metadata__: { a: 1 } }), /__metadata__ 'a' is not a string/)
  refused(t, fileOf({ __metadata__: [] }), /__metadata__ is not an object/)
  refused(
    t,
    Buffer.from('version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n'),
    /git lfs pull/,
  )
  t.strictSame(parseSafetensors(fileOf('{}')).tensors.size, 0, 'a file without tensors is a file')
  t.end()
})

t.test('refuses to write what it could not read', t => {
  const x = Tensor.from([1])
  const write = (tensors: Parameters<typeof serializeSafetensors>[0]) => () => serializeSafetensors(tensors)
  t.throws(write({ __metadata__: x }), { code: 'ERR_ARGUMENT' })
  t.throws(
    write([
      ['x', x],
      ['x', x],
    ]),
    { code: 'ERR_ARGUMENT', message: /'x' occurs twice/ },
  )
  t.throws(write({ x: { dtype: 'F64', shape: [1], data: x.data } }), { code: 'ERR_SHAPE' })
  t.throws(write({ x: { dtype: 'F65' as 'F64', shape: [1], data: x.data } }), { code: 'ERR_DTYPE' })
  t.end()
})

t.test('input and output errors', async t => {
  await t.rejects(readSafetensors(path.join(folder, 'absent')), { code: 'ERR_IO', message: /no such file/ })
  await t.rejects(readSafetensors(folder), { code: 'ERR_IO' })
  await t.rejects(readSafetensors(5 as unknown as string), { code: 'ERR_ARGUMENT', message: /source/ })
  await t.rejects(writeSafetensors(path.join(folder, 'no', 'x'), {}), { code: 'ERR_IO' })
  t.strictSame(
    readdirSync(folder).filter(name => name.endsWith('.tmp')),
    [],
  )
})

t.test(
  'a full disk leaves the old file and no temporary',
  { skip: process.platform === 'win32' && 'needs ulimit' },
  t => {
    const file = path.join(folder, 'limited.safetensors')
    writeFileSync(file, 'old')
    const library = pathToFileURL(path.resolve('dist/index.js')).href
    const script = `
    import { Tensor, writeSafetensors } from '${library}'
    process.on('SIGXFSZ', () => {}) // otherwise the write beyond the limit kills the process
    const error = await writeSafetensors(process.argv[1], { x: Tensor.zeros([100_000]) }).then(() => null, e => e)
    console.log(error?.code)`
    // 32 KiB: room for the file that tap writes in every child, not for the tensor.
    const node = `ulimit -f 64; exec "$0" --input-type=module -e "$1" "$2"`
    t.equal(
      execFileSync('sh', ['-c', node, process.execPath, script, file], { encoding: 'utf8' }).trim(),
      'ERR_IO',
    )
    t.equal(readFileSync(file, 'utf8'), 'old')
    t.strictSame(
      readdirSync(folder).filter(name => name.endsWith('.tmp')),
      [],
    )
    t.end()
  },
)

t.test('random damage is an ERR_FORMAT or a valid file, nothing else', t => {
  const random = randomGenerator(20260821)
  const tensors = {
    a: Tensor.from([[1, 2, 3]]),
    'layers.0.b': Tensor.zeros([5, 1], 'bf16'),
    c: Tensor.from(1),
  }
  const valid = Buffer.concat(serializeSafetensors(tensors))
  for (let round = 0; round < 4000; round++) {
    let bytes = Buffer.from(valid)
    for (let edits = 1 + (round % 4); edits > 0; edits--) {
      const at = Math.floor(random() * bytes.length)
      const kind = random()
      if (kind < 0.6) bytes[at] = Math.floor(random() * 256)
      else if (kind < 0.8) bytes = bytes.subarray(0, at)
      else bytes = Buffer.concat([bytes.subarray(0, at), bytes.subarray(Math.floor(random() * bytes.length))])
      if (bytes.length === 0) break
    }
    try {
      parseSafetensors(bytes)
    } catch (error) {
      if (!(error instanceof SparkError) || error.code !== 'ERR_FORMAT') {
        t.fail(`round ${round}: ${error}`, { header: bytes.toString('latin1') })
      }
    }
  }
  t.pass('4000 damaged files')
  t.end()
})

t.test('adapters of PEFT are written byte for byte', { skip: noGolden }, async t => {
  const root = path.join(data!, 'peft', 'adapters')
  const files = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter(name =>
    name.endsWith('.safetensors'),
  )
  t.ok(files.length > 10)
  for (const name of files) {
    const bytes = readFileSync(path.join(root, name))
    const { tensors, metadata } = parseSafetensors(bytes, name)
    const written = Buffer.concat(
      serializeSafetensors(tensors, { metadata: metadata.size > 0 ? metadata : null }),
    )
    t.ok(written.equals(bytes), name)
  }
})
