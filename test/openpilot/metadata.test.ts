// Metadata of openpilot's models: real files, and pickles that are made to do something else.
import { readModelMetadata, readOutputSlices, SparkError } from 'dgx-spark'
import t from 'tap'
import { op, outputSlices, pickle, program, text } from '../fixtures/openpilot/pickles.js'
import { decodedMetadata, metadataBytes, metadataFiles } from '../fixtures/openpilot/shared-data.js'
import { noGolden } from '../fixtures/values/golden-bytes.js'

const refused = { name: 'SparkError', code: 'ERR_FORMAT' }

t.test('metadata files of 21 models', { skip: noGolden }, async t => {
  const decoded = decodedMetadata()
  const files = metadataFiles()
  t.equal(files.length, 21)
  t.strictSame(files.sort(), Object.keys(decoded).sort())
  for (const name of files) {
    const expected = decoded[name]!
    const slices = Object.entries(expected.output_slices).map(([name, [start, end]]) => [
      name,
      { start, end },
    ])
    t.strictSame(
      await readModelMetadata(metadataBytes(name)),
      {
        checkpoint: expected.model_checkpoint ?? null,
        outputSlices: Object.fromEntries(slices),
        inputShapes: expected.input_shapes,
        outputShapes: expected.output_shapes,
      },
      name,
    )
  }
})

t.test('a real file that is cut off at any byte is refused', { skip: noGolden }, async t => {
  const bytes = metadataBytes('driving_vision_metadata.9aa8bf83')
  for (let length = 0; length < bytes.length; length++)
    await t.rejects(readModelMetadata(bytes.subarray(0, length)), refused)
})

t.test('a real file with wrong bytes is read or refused', { skip: noGolden }, async t => {
  const bytes = metadataBytes('supercombo_metadata.c61356a9')
  let seed = 1
  const random = (below: number): number => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0
    return seed % below
  }
  for (let i = 0; i < 3000; i++) {
    const wrong = Uint8Array.from(bytes)
    for (let k = 0; k <= i % 3; k++) wrong[random(wrong.length)]! ^= 1 << random(8)
    try {
      await readModelMetadata(wrong)
    } catch (error) {
      if (!(error instanceof SparkError) || error.code !== 'ERR_FORMAT') t.fail(`${i}: ${error}`)
    }
  }
})

t.test('output slices as base64 text, and as bytes', async t => {
  const slices = { plan: { start: 0, end: 990 }, pad: { start: -2, end: null } }
  const bytes = pickle(slices)
  const base64 = Buffer.from(bytes).toString('base64')
  t.strictSame(await readOutputSlices(bytes), slices)
  t.strictSame(await readOutputSlices(base64), slices)
  t.strictSame(await readOutputSlices(base64.replace(/(.{76})/g, '$1\n')), slices, "in Python's lines")
  t.strictSame(await readOutputSlices(outputSlices({ a: 3, b: 70_000 }).base64), {
    a: { start: 0, end: 3 },
    b: { start: 3, end: 70_003 },
  })
})

t.test('what is no pickle of slices', async t => {
  for (const text of ['', 'gA', 'gAS=V', '{"plan": [0, 990]}', 'gASV!'])
    await t.rejects(readOutputSlices(text), { ...refused, message: /base64|cut off/ }, text)
  await t.rejects(readOutputSlices(pickle({})), { ...refused, message: /names no outputs/ })
  await t.rejects(readOutputSlices(pickle({ plan: 'text' })), { ...refused, message: /'plan' is no slice/ })
  await t.rejects(readOutputSlices(7 as unknown as string), { code: 'ERR_ARGUMENT' })
  await t.rejects(readModelMetadata('gAS=' as unknown as Uint8Array), { code: 'ERR_ARGUMENT' })
  const shapes = { input_shapes: { items: {} }, output_shapes: { items: {} } }
  const slices = { items: { a: { start: 0, end: 1 } } }
  await t.rejects(readModelMetadata(pickle(shapes)), { ...refused, message: /no dictionary 'output_slices'/ })
  await t.rejects(readModelMetadata(pickle({ ...shapes, output_slices: slices, run: 'x' })), {
    ...refused,
    message: /unknown key 'run'/,
  })
  await t.rejects(
    readModelMetadata(pickle({ ...shapes, output_slices: slices, input_shapes: { items: { a: [-1] } } })),
    { ...refused, message: /'a' is no shape/ },
  )
  t.strictSame(
    (await readModelMetadata(pickle({ ...shapes, output_slices: slices, model_checkpoint: 'x' }))).checkpoint,
    'x',
  )
})

t.test('a key that JavaScript treats specially is a key', async t => {
  const slices = await readOutputSlices(pickle(Object.fromEntries([['__proto__', { start: 1, end: 2 }]])))
  t.strictSame(Object.entries(slices), [['__proto__', { start: 1, end: 2 }]])
})

const systemCall = [...text('os'), ...text('system'), op.global]
const sliceCall = [...text('builtins'), ...text('slice'), op.global]
const ends = [op.byte, 0, op.byte, 1, op.none]

const hostile: Readonly<Record<string, readonly [Uint8Array, RegExp]>> = {
  'a call of os.system': [
    program(...systemCall, ...text('true'), 0x85, op.reduce, op.stop),
    /byte 23: STACK_GLOBAL names os\.system; only builtins\.slice is allowed/,
  ],
  'builtins.eval': [
    program(...text('builtins'), ...text('eval'), op.global, ...text('1'), 0x85, op.reduce, op.stop),
    /builtins\.eval/,
  ],
  'another protocol': [Uint8Array.of(0x80, 5, op.dict, op.stop), /PROTO 4/],
  'an old GLOBAL': [program(0x63, ...Buffer.from('os\nsystem\n'), op.stop), /GLOBAL \(0x63\)/],
  'a persistent id': [program(op.dict, 0x51, op.stop), /BINPERSID \(0x51\)/],
  'a new object': [program(...sliceCall, op.mark, op.tuple, 0x81, op.stop), /NEWOBJ \(0x81\)/],
  'an unknown instruction': [program(0xff, op.stop), /instruction 0xff/],
  'a second PROTO': [program(0x80, 4, op.dict, op.stop), /PROTO \(0x80\)/],
  'deep marks': [program(...Array(9).fill(op.mark), op.stop), /MARK is nested more than 8 deep/],
  'a memo bomb': [program(op.dict, ...Array(5000).fill(op.memoize), op.stop), /more than 4096 values/],
  'a stack bomb': [program(...Array(5000).fill(op.none), op.stop), /more than 4096 values/],
  'nested tuples': [program(op.none, 0x85, 0x85, op.stop), /a tuple must hold integers and None only/],
  'a dictionary in itself': [
    program(op.dict, op.memoize, ...text('a'), op.get, 0, op.setItem, op.stop),
    /dictionary a second time/,
  ],
  'a missing memo': [program(op.dict, op.get, 7, op.stop), /entry 7 of 0/],
  'a slice with a step': [
    program(...sliceCall, op.byte, 0, op.byte, 4, op.byte, 2, op.tuple3, op.reduce, op.stop),
    /no step/,
  ],
  'a call of a text': [program(...text('a'), ...ends, op.tuple3, op.reduce, op.stop), /something else/],
  'no arguments': [program(...sliceCall, op.none, op.reduce, op.stop), /start, a stop/],
  'a key twice': [
    program(op.dict, ...text('a'), op.none, op.setItem, ...text('a'), op.none, op.setItem, op.stop),
    /'a' occurs twice/,
  ],
  'a key that is a number': [program(op.dict, op.none, op.none, op.setItem, op.stop), /key is no text/],
  'a function as a value': [program(op.dict, ...text('a'), ...sliceCall, op.setItem, op.stop), /no value/],
  'an odd number of items': [
    program(op.dict, op.mark, ...text('a'), op.setItems, op.stop),
    /a key has no value/,
  ],
  'items without a mark': [program(op.dict, ...text('a'), op.none, op.setItems, op.stop), /no MARK/],
  'items of a text': [program(...text('a'), ...text('b'), op.none, op.setItem, op.stop), /no dictionary/],
  'an empty stack': [program(op.setItem, op.stop), /a value is missing/],
  'no dictionary at the end': [program(op.none, op.stop), /does not end with a dictionary/],
  'two values at the end': [program(op.dict, op.dict, op.stop), /does not end with a dictionary/],
  'something behind the end': [program(op.dict, op.stop, 0), /something follows the STOP/],
  'a text that is not UTF-8': [program(op.dict, 0x8c, 1, 0xff, op.stop), /not UTF-8/],
  'a frame that is too long': [
    Uint8Array.of(0x80, 4, 0x95, 9, 0, 0, 0, 0, 0, 0, 0, op.dict, op.stop),
    /FRAME/,
  ],
  'a huge file': [new Uint8Array(65537), /more than 65536/],
}

for (const [name, [bytes, message]] of Object.entries(hostile)) {
  t.test(`refused: ${name}`, async t => {
    await t.rejects(readOutputSlices(bytes), { ...refused, message })
    await t.rejects(readModelMetadata(bytes), { ...refused, message })
  })
}
