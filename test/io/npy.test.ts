// Arrays in NumPy's format: what is read, and what is refused.
import t from 'tap'
import { parseNpy } from '#lib/io/npy.js'
import { randomGenerator } from '../fixtures/values/random.js'

function npy(header: string, data: ArrayBufferView, version = 1): Uint8Array {
  const text = Buffer.from(`${header}\n`)
  const length = Buffer.alloc(version === 1 ? 2 : 4)
  if (version === 1) length.writeUInt16LE(text.length)
  else length.writeUInt32LE(text.length)
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength)
  return Buffer.concat([
    Buffer.from([0x93]),
    Buffer.from('NUMPY'),
    Buffer.from([version, 0]),
    length,
    text,
    bytes,
  ])
}
const header = (type: string, shape: string, fortran = 'False'): string =>
  `{'descr': '${type}', 'fortran_order': ${fortran}, 'shape': ${shape}, }`

t.test('reads', async t => {
  const matrix = parseNpy(npy(header('<f4', '(2, 3)'), Float32Array.of(1, 2, 3, 4, 5, 6)))
  t.same(
    [matrix.dtype, matrix.shape, matrix.toArray()],
    [
      'f32',
      [2, 3],
      [
        [1, 2, 3],
        [4, 5, 6],
      ],
    ],
  )
  const list = parseNpy(npy(header('<i8', '(1,)'), BigInt64Array.of(-7n), 2))
  t.same([list.dtype, list.shape, list.data], ['i64', [1], BigInt64Array.of(-7n)])
  t.same(parseNpy(npy(header('>i4', '(1,)'), Uint8Array.of(0, 0, 1, 0))).data, Int32Array.of(256))
  t.same(parseNpy(npy(header('|b1', '(2,)'), Uint8Array.of(0, 1))).data, Uint8Array.of(0, 1))
  t.same(parseNpy(npy(header('|b1', '()'), Uint8Array.of(1))).shape, [])
  t.same(parseNpy(npy(header('<f2', '(0, 5)'), new Uint16Array(0))).shape, [0, 5])
  const columns = parseNpy(npy(header('<f4', '(2, 3)', 'True'), Float32Array.of(1, 4, 2, 5, 3, 6)))
  t.same([columns.shape, columns.data], [[2, 3], Float32Array.of(1, 2, 3, 4, 5, 6)], 'column-major')
  const texts = parseNpy(npy(header('|S3', '(2,)'), Buffer.from('ab\0cde')))
  t.same([texts.dtype, texts.shape, texts.data], ['u8', [2, 3], new Uint8Array(Buffer.from('ab\0cde'))])
})

t.test('refuses', async t => {
  const refused = (bytes: Uint8Array, code: string) => t.throws(() => parseNpy(bytes), { code })
  const one = Float32Array.of(1)
  refused(npy(header('<c8', '(1,)'), one), 'ERR_DTYPE')
  refused(npy(header('|O', '(1,)'), one), 'ERR_FORMAT')
  refused(npy(header('<f4', '(1, 1, 1)', 'True'), one), 'ERR_UNSUPPORTED')
  refused(npy(header('<f4', '(2,)'), one), 'ERR_FORMAT')
  refused(npy(header('<f4', '(2,)'), Float32Array.of(1, 2, 3)), 'ERR_FORMAT')
  refused(npy(header('<f4', '(99999999, 99999999, 99999999)'), one), 'ERR_FORMAT')
  refused(npy('{}', one), 'ERR_FORMAT')
  refused(Buffer.from('hello, world'), 'ERR_FORMAT')
})

t.test('garbage', async t => {
  const random = randomGenerator(4)
  const good = npy(header('<f4', '(2, 3)'), new Float32Array(6))
  for (let trial = 0; trial < 300; trial++) {
    const bytes = Uint8Array.from(good.subarray(0, Math.floor(random() * (good.length + 1))))
    for (let i = 0; i < 3 && bytes.length > 0; i++)
      bytes[Math.floor(random() * bytes.length)] = random() * 256
    try {
      parseNpy(bytes)
    } catch (error) {
      if (!/^ERR_(FORMAT|DTYPE|UNSUPPORTED)$/.test((error as { code: string }).code)) t.fail(String(error))
    }
  }
  t.pass('only errors of ours')
})
