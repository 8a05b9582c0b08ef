// Values of jobs as bytes, and bytes that lie.
import { Buffer } from 'node:buffer'
import t from 'tap'
import { type JobValue, pack, unpack } from '#lib/cluster/jobs/pack.js'
import { randomGenerator } from '#lib/core/random.js'

t.test('values come back as they were', async t => {
  const values: JobValue[] = [
    null,
    true,
    -1.5,
    'text with \0 and ü',
    '',
    [],
    {},
    [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, -0],
    2n ** 70n,
    -5n,
    { b: 1, a: [1, { c: null }], $array: ['x'], $$: 1, $number: 'NaN' },
    new Float32Array([1.5, Number.NaN, -0]),
    { x: new BigInt64Array([-1n]), y: [new Uint8Array(3), new Int16Array(0), new Float64Array([0.1])] },
  ]
  for (const value of values) t.same(unpack(pack(value)), value)
  t.same(unpack(pack({ a: undefined, b: 1 })), { b: 1 })
  t.ok(Object.is((unpack(pack([-0])) as number[])[0], -0))
  const part = new Float32Array([1, 2, 3, 4]).subarray(1, 3)
  t.same(unpack(pack(part)), new Float32Array([2, 3]))
  t.ok(pack({ b: 1, a: 2 }).equals(pack({ a: 2, b: 1 })), 'the order of keys is nothing')
})

t.test('what cannot travel', async t => {
  const nested = (depth: number): JobValue => (depth === 0 ? 1 : [nested(depth - 1)])
  t.ok(pack(nested(60)))
  for (const value of [() => 1, Symbol('x'), new Date(), new Map(), { x: [new Set()] }, nested(100)])
    t.throws(() => pack(value as JobValue), { code: 'ERR_ARGUMENT' })
})

t.test('damaged bytes are refused and nothing else happens', async t => {
  const good = pack({ x: new Float32Array(5), y: [1, 'z'], z: 7n })
  const random = randomGenerator(7)
  for (let round = 0; round < 2000; round++) {
    const bytes = Buffer.from(good)
    for (let n = 0; n < 3; n++) bytes[Math.floor(random() * bytes.length)] = random() * 256
    const cut = bytes.subarray(0, random() < 0.5 ? bytes.length : Math.floor(random() * bytes.length))
    try {
      unpack(cut)
    } catch (error) {
      if ((error as { code?: string }).code !== 'ERR_FORMAT') t.fail(String(error))
    }
  }
  const packed = (json: string): Buffer => {
    const length = Buffer.alloc(4)
    length.writeUInt32LE(json.length)
    return Buffer.concat([length, Buffer.from(json)])
  }
  const lies = [
    '{"$array":["Float32Array",0,1e12]}',
    '{"$array":["Float32Array",-8,1]}',
    '{"$array":["Function",0,0]}',
    '{"$array":["Float32Array",4,0]}',
    '{"$array":7}',
    // One after the other they have more bytes than there are.
    `[${'{"$array":["Uint8Array",0,24]},'.repeat(3)}1]        `.padEnd(124),
    '{"$bigint":"1e9"}',
    `${'['.repeat(500)}${']'.repeat(500)}`,
    '{',
  ]
  for (const lie of lies) t.throws(() => unpack(packed(lie)), { code: 'ERR_FORMAT' }, lie.slice(0, 40))
  for (const bytes of [[], [1], [255, 255, 255, 255]])
    t.throws(() => unpack(Uint8Array.from(bytes)), { code: 'ERR_FORMAT' })
  t.same(unpack(packed('{"__proto__":{"x":1}}')), JSON.parse('{"__proto__":{"x":1}}'))
  t.equal(({} as { x?: number }).x, undefined)
})
