// Messages between stages: round trips in frames of any size, and what no node of ours sends.
import { Tensor } from 'dgx-spark'
import t from 'tap'
import { encodeMessage, type Message, PartialMessage } from '#lib/cluster/stages/messages.js'
import { checkQuestion } from '#lib/cluster/stages/questions.js'
import type { SparkError } from '#lib/core/errors.js'
import { randomGenerator } from '#lib/core/random.js'

const read = (payloads: Iterable<Uint8Array>): Message | undefined => {
  const [first, ...rest] = payloads
  const partial = new PartialMessage(first!)
  for (const payload of rest) partial.add(payload)
  return partial.whole
}

t.test('round trips', async t => {
  const tensors = {
    empty: Tensor.zeros([0, 3]),
    scalar: Tensor.from([-0], { shape: [] }),
    nan: Tensor.from([Number.NaN, Number.NEGATIVE_INFINITY, 1e-45]),
    half: Tensor.from([1, 2, 3], { dtype: 'f16' }),
    bytes: Tensor.from(Uint8Array.of(1, 2, 3)),
    whole: Tensor.from([1n, -(2n ** 63n)]),
    flag: Tensor.from([true, false]),
    last: Tensor.zeros([0]),
  }
  const message = { words: { op: 'run', step: 3 }, tensors } as unknown as Message
  const found = read(encodeMessage(message))!
  t.same(found.words, message.words)
  for (const [name, { dtype, shape, data }] of Object.entries(tensors)) {
    const { [name]: other } = found.tensors
    t.strictSame([other!.dtype, other!.shape], [dtype, shape], name)
    t.ok(
      Buffer.from((other!.data as Uint8Array).buffer).equals(
        Buffer.from((data as Uint8Array).slice().buffer),
      ),
      name,
    )
  }
  const large = Tensor.random([700_001], { seed: 1 })
  const payloads = [...encodeMessage({ words: {}, tensors: { large } } as unknown as Message)]
  t.ok(payloads.length > 2 && payloads.every(({ length }) => length <= 1 << 20))
  t.strictSame(read(payloads)!.tensors.large!.data, large.data)
  t.equal(read(payloads.slice(0, -1)), undefined)
  const strings = { text: Tensor.from(['a']) } as unknown as Message['tensors']
  t.throws(() => [...encodeMessage({ words: {}, tensors: strings })], { code: 'ERR_UNSUPPORTED' })
})

const headed = (head: unknown, body = 0): Uint8Array => {
  const json = Buffer.from(typeof head === 'string' ? head : JSON.stringify(head))
  const length = Buffer.alloc(4)
  length.writeUInt32LE(json.length)
  return Buffer.concat([length, json, Buffer.alloc(body)])
}

t.test('what no node sends is refused before memory is allocated', async t => {
  const format = { code: 'ERR_FORMAT' }
  const huge = 2 ** 40
  for (const payload of [
    Buffer.alloc(0),
    Buffer.alloc(3),
    Buffer.from('ffffffff', 'hex'),
    headed('{'),
    headed('null'),
    headed({ words: {} }),
    headed({ words: {}, tensors: [['x', 'f32', [huge]]] }),
    headed({ words: {}, tensors: [['x', 'f32', [2 ** 30, 2 ** 30, 2 ** 30]]] }),
    headed({ words: {}, tensors: [['x', 'string', [1]]] }),
    headed({ words: {}, tensors: [['x', 'constructor', [1]]] }),
    headed({ words: {}, tensors: [['x', { toString: 1 }, [1]]] }),
    headed({ words: {}, tensors: [['x', 'f32', [-1]]] }),
    headed({ words: {}, tensors: [['x', 'f32', [1.5]]] }),
    headed({ words: {}, tensors: new Array(5000).fill(['x', 'f32', []]) }),
    headed({ words: {}, tensors: [['x', 'u8', [3]]] }, 4),
  ])
    t.throws(() => new PartialMessage(payload), format)
  const partial = new PartialMessage(headed({ words: {}, tensors: [['x', 'u8', [3]]] }, 2))
  t.throws(() => partial.add(new Uint8Array(2)), format)
})

const manifest = { name: 'm.onnx', bytes: 5, chunkBytes: 4096, chunks: ['0'.repeat(64)] }
const loadFile = { manifest, ranges: [] }
const loadParts = { files: [loadFile], ends: [3], index: 1, states: [['a', 'b']], names: [['a'], ['b']] }
const backwards = { begin: 5, end: 0 }

t.test('mutants of messages and questions end in a message or in ERR_FORMAT', async t => {
  const random = randomGenerator(7)
  const words = { op: 'load', stage: 's', parts: loadParts, options: { backend: 'cpu', threads: 2 } }
  t.same(checkQuestion(words).op, 'load')
  const [whole] = [...encodeMessage({ words, tensors: { x: Tensor.zeros([2, 3]) } } as unknown as Message)]
  let refused = 0
  for (let i = 0; i < 3000; i++) {
    const mutant = Buffer.from(whole!)
    for (let n = 0; n < 1 + (i % 3); n++)
      mutant[Math.floor(random() * mutant.length)] = Math.floor(random() * 256)
    try {
      const message = new PartialMessage(
        mutant.subarray(0, i % 5 === 0 ? Math.floor(random() * 400) : undefined),
      ).whole
      if (message) checkQuestion(message.words)
    } catch (error) {
      refused++
      if ((error as SparkError).code !== 'ERR_FORMAT') t.fail(`${error}`)
    }
  }
  t.ok(refused > 500, `${refused} refused`)
})

t.test('questions', async t => {
  for (const words of [
    {},
    { op: 'load', stage: '../x' },
    { op: 'load', stage: 's' },
    { op: 'run', stage: 's', step: -1 },
    { op: 'run', stage: 's', sequence: 'a/b' },
    { op: 'run', stage: 's', outputs: [1] },
    { op: 'begin', stage: 's' },
    { op: 'explode', stage: 's', sequence: 'q' },
    { op: 'load', stage: 's', parts: { files: [], ends: [], index: 0, states: [], names: [] } },
    { op: 'load', stage: 's', parts: { ...loadParts, files: [{ ...loadFile, ranges: [backwards] }] } },
  ])
    t.throws(() => checkQuestion(words), { code: 'ERR_FORMAT' }, JSON.stringify(words))
  for (const words of [
    { op: 'join', stage: 's', peers: [] },
    { op: 'join', stage: 's', group: 2 ** 32, peers: [] },
    { op: 'join', stage: 's', group: 1, peers: ['/'] },
    { op: 'join', stage: 's', group: 1, peers: new Array(1025).fill('a') },
    { op: 'abort', stage: 's', group: -1 },
  ])
    t.throws(() => checkQuestion(words), { code: 'ERR_FORMAT' }, JSON.stringify(words).slice(0, 80))
  t.same(checkQuestion({ op: 'run', stage: 's' }), {
    ...{ op: 'run', stage: 's', sequence: undefined, step: 0, outputs: undefined, quiet: false },
  })
})
