// `dgx-spark run`: reproducible inputs, outputs in files, comparisons, shapes.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { type ElementType, readSafetensors, Tensor } from 'dgx-spark'
import t from 'tap'
import { int } from '#lib/graph/attributes.js'
import { Constant } from '#lib/graph/constant.js'
import { type Graph, makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { parseNpy, serializeNpy } from '#lib/io/npy.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')
const folder = mkdtempSync(path.join(tmpdir(), 'run-'))
const at = (name: string): string => path.join(folder, name)

function save(name: string, graph: Partial<Graph>): string {
  writeFileSync(at(name), serializeOnnx(makeGraph(graph)))
  return at(name)
}

const weight = Constant.f32([1, -1, 2, 0, 0, 3], [3, 2])
const small = save('small.onnx', {
  inputs: [{ name: 'x', type: tensorType('f32', ['rows', 3]) }],
  outputs: [{ name: 'y/1' }],
  nodes: [makeNode('MatMul', ['x', 'w'], ['y/1'])],
  initializers: new Map([['w', weight]]),
})
const doubled = save('doubled.onnx', {
  inputs: [{ name: 'x', type: tensorType('f32', ['rows', 3]) }],
  outputs: [{ name: 'y/1' }],
  nodes: [makeNode('MatMul', ['x', 'w'], ['y']), makeNode('Add', ['y', 'y'], ['y/1'])],
  initializers: new Map([['w', weight]]),
})

function cli(...args: string[]) {
  const env = { PATH: process.env.PATH!, HOME: process.env.HOME ?? '' }
  const result = spawnSync(process.execPath, ['--no-warnings', main, 'run', ...args], {
    encoding: 'utf8',
    env,
    cwd: folder,
  })
  return { ...result, json: () => JSON.parse(result.stdout) }
}

t.test('random inputs follow from the seed', async t => {
  const values = (...args: string[]) =>
    cli(small, '--runs', '1', '--backend', 'js', '--json', ...args).json().outputs[0].values
  const first = values()
  t.same(values('--seed', '0'), first, 'the default seed is 0')
  t.notSame(values('--seed', '1'), first)
  t.equal(cli(small, '--seed', '-1').status, 2)
})

t.test('all values of outputs, as numbers', async t => {
  const types: ElementType[] = [
    'f64',
    'f16',
    'bf16',
    'f8_e4m3',
    'f8_e4m3fnuz',
    'f8_e5m2fnuz',
    'f8_e8m0',
    'i64',
    'u8',
    'i4',
    'bool',
  ]
  const codes = {
    f64: 1,
    f16: 10,
    bf16: 16,
    f8_e4m3: 17,
    f8_e4m3fnuz: 18,
    f8_e5m2fnuz: 20,
    f8_e8m0: 24,
    i64: 7,
    u8: 2,
    i4: 22,
    bool: 9,
  }
  const casts = save('casts.onnx', {
    inputs: [{ name: 'x', type: tensorType('f32', [8]) }],
    outputs: types.map(name => ({ name, type: tensorType(name, [8]) })),
    nodes: types.map(name =>
      makeNode('Cast', ['x'], [name], { attributes: { to: int(codes[name as keyof typeof codes]) } }),
    ),
    opsets: new Map([['', 25]]),
  })
  writeFileSync(at('x.npy'), Buffer.concat(serializeNpy(Tensor.from([0.5, 1, 2, 4, 1, 2, 4, 2]))))
  const { outputs } = cli(casts, '--input', 'x=x.npy', '--json', '--backend', 'js').json()
  const named = Object.fromEntries(
    outputs.map((each: { name: string; values: unknown[] }) => [each.name, each.values]),
  )
  const floats = [0.5, 1, 2, 4, 1, 2, 4, 2]
  for (const name of types) {
    const whole = floats.map(Math.trunc)
    const expected = name === 'bool' ? floats.map(Boolean) : /^[iu]/.test(name) ? whole : floats
    t.same(named[name], expected, name)
  }
  const text = cli(casts, '--input', 'x=x.npy', '--backend', 'js')
  t.equal(text.status, 0, text.stderr)
  t.match(text.stdout, /f8_e8m0 \[8\] +│ 0\.5 1 2 4 1 2 …/)
})

t.test('--output', async t => {
  const fixed = ['--backend', 'js', '--runs', '1', '--size', 'rows=2']
  const [values] = cli(small, ...fixed, '--json').json().outputs
  t.match(cli(small, ...fixed, '--output', 'y.safetensors').stdout, 'wrote y.safetensors')
  const { tensors } = await readSafetensors(at('y.safetensors'))
  t.same([...(tensors.get('y/1')!.data as Float32Array)], values.values)
  t.equal(cli(small, ...fixed, '-o', 'y.npy').status, 0)
  t.same([...parseNpy(readFileSync(at('y.npy'))).toFloat32()], values.values)
  t.equal(cli(small, ...fixed, '-o', 'outputs').status, 0)
  t.same(readdirSync(at('outputs')), ['y%2F1.npy'], 'a name that is no file name')
  for (const saved of ['y.safetensors', 'y.npy', 'outputs/']) {
    const { differences } = cli(small, ...fixed, '--compare', saved, '--json').json()
    t.match(differences, [{ name: 'y/1', relativeError: 0, maxError: 0, cosine: Number }], saved)
  }
  t.match(cli(small, '--output', 'small.onnx'), { status: 2, stderr: /is the model itself/ })
  t.match(cli(at('casts.onnx'), '--output', 'y.npy'), {
    status: 2,
    stderr: /one \.npy file cannot hold 11 outputs/,
  })
})

t.test('--activations', async t => {
  const args = ['--precision', 'nvfp4', '--activations', 'nvfp4']
  t.match(cli(small, ...args), { status: 1, stderr: /no weight of the model is: add precision 'nvfp4'/ })
  t.match(cli(small, '--activations', 'fp4'), {
    status: 2,
    stderr: /Allowed choices are f32, bf16, int8, nvfp4/,
  })
  t.match(cli(small, ...args, '--cluster'), {
    status: 2,
    stderr: /--activations works without --cluster only/,
  })
})

t.test('--compare', async t => {
  const fixed = ['--backend', 'js', '--runs', '1', '--size', 'rows=2']
  const other = cli(small, ...fixed, '--compare', doubled)
  t.equal(other.status, 0)
  t.match(other.stdout, /compared with .*doubled\.onnx.*y\/1.*5\.00e-1/s)
  const strict = cli(small, ...fixed, '--compare', doubled, '--tolerance', '0.4', '--json')
  t.equal(strict.status, 1, 'above the tolerance')
  t.match(strict.json().differences, [{ relativeError: 0.5 }])
  t.match(cli(small, ...fixed, '--compare', 'fp16', '--json').json().differences[0], { relativeError: 0 })
  t.match(cli(small, ...fixed, '--compare', 'onxruntime'), {
    status: 2,
    stderr: /did you mean 'onnxruntime'/,
  })
  t.match(cli(small, ...fixed, '--compare', 'none.npy'), { status: 1, stderr: /none\.npy: no such file/ })
  t.match(cli(small, '--tolerance', '1'), { status: 2, stderr: /--tolerance needs --compare/ })
})

t.test("--input converts between floats, so that NumPy's f64 does", async t => {
  const f64 = Tensor.from(Float64Array.of(1, 2, 3), { dtype: 'f64', shape: [1, 3] })
  writeFileSync(at('f64.npy'), Buffer.concat(serializeNpy(f64)))
  const { stderr, json } = cli(small, '--input', 'x=f64.npy', '--backend', 'js', '--json')
  t.match(stderr, "input 'x': f64 converted to f32")
  t.same(json().outputs[0].values, [5, 8])
})

t.test('sizes', async t => {
  const windowed = save('windowed.onnx', {
    inputs: [
      { name: 'wave', type: tensorType('f32', ['batch', 1, null]) },
      { name: 'gain', type: tensorType('f32', ['batch', 1, 1]) },
    ],
    outputs: [{ name: 'y' }],
    nodes: [makeNode('Mul', ['wave', 'gain'], ['z']), makeNode('Conv', ['z', 'w'], ['y'])],
    initializers: new Map([['w', Constant.f32(new Array(8).fill(1), [1, 1, 8])]]),
  })
  const flags = ['--backend', 'js', '--runs', '1']
  t.match(cli(windowed, ...flags), {
    status: 1,
    stderr:
      /does not fit.*open sizes were taken as 1: give others, such as --size batch=N or --shape wave=N,1,N/,
  })
  t.match(cli(windowed, ...flags, '--shape', 'wave=1,1,16').stdout, /f32 \[1, 1, 9\]/)
  writeFileSync(at('wave.npy'), Buffer.concat(serializeNpy(Tensor.zeros([2, 1, 16]))))
  t.match(
    cli(windowed, ...flags, '--input', 'wave=wave.npy').stdout,
    /f32 \[2, 1, 9\]/,
    'batch is that of the file',
  )
  t.match(cli(windowed, ...flags, '--shape', 'wve=1,1,16'), {
    status: 2,
    stderr: /inputs of the model are: wave, gain.*did you mean 'wave'/,
  })
  t.match(cli(windowed, ...flags, '--shape', 'wave=1,2,16'), {
    status: 2,
    stderr: /the model wants \[batch, 1, \?\]/,
  })
  t.equal(cli(windowed, ...flags, '--shape', 'wave=1;2').status, 2)
  const about = spawnSync(process.execPath, [main, 'inspect', windowed], { encoding: 'utf8' })
  t.equal(about.status, 0, 'inspect shows inputs of a model that runs at other sizes only')
  t.match(about.stdout, /wave: f32 \[batch, 1, \?\].*plan +none for these sizes: .*--shape wave=N,1,N/s)
})

t.test('texts and sequences', async t => {
  const lists = save('lists.onnx', {
    inputs: [{ name: 'x', type: tensorType('f32', [4]) }],
    outputs: [{ name: 'parts' }, { name: 'words', type: tensorType('string', [1]) }],
    nodes: [makeNode('SplitToSequence', ['x', 'two'], ['parts']), makeNode('Identity', ['text'], ['words'])],
    initializers: new Map([
      ['two', Constant.from('i64', [], BigInt64Array.of(2n))],
      ['text', Constant.strings([1], ['word'])],
    ]),
    opsets: new Map([['', 25]]),
  })
  const { status, stderr, stdout } = cli(lists, '--backend', 'js', '--runs', '1', '--json')
  t.equal(status, 0, stderr)
  t.match(JSON.parse(stdout).outputs, [
    { name: 'parts', kind: 'sequence', items: [{ shape: [2] }, { shape: [2] }] },
    { name: 'words', dtype: 'string', values: ['word'] },
  ])
  t.match(cli(lists, '--backend', 'js', '--output', 'lists'), {
    status: 1,
    stderr: /'words' is of string.*ERR_DTYPE/,
  })
})
