// inspect of GGUF files: the table, the JSON document, the memory of a context.
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { type GgufTensorInput, type GgufValue, readGguf, writeGguf } from 'dgx-spark'
import t from 'tap'
import { memoryOf } from '#lib/cli/gguf-memory.js'
import { rawGguf } from '../fixtures/gguf/raw-gguf.js'
import { noGolden } from '../fixtures/values/golden-bytes.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')
const folder = t.testdir({})
const data = process.env.DGX_SPARK_TEST_DATA ?? ''

function inspect(...args: string[]) {
  const result = spawnSync(process.execPath, ['--no-warnings', main, 'inspect', ...args], {
    encoding: 'utf8',
  })
  return { ...result, json: () => JSON.parse(result.stdout) }
}

const u32 = (value: number): GgufValue => ({ type: 'u32', value })
const string = (value: string): GgufValue => ({ type: 'string', value })

/** A model of 3 layers with 4 heads, 2 of keys and values, 16 wide. */
const usual: Readonly<Record<string, GgufValue>> = {
  'general.architecture': string('llama'),
  'llama.block_count': u32(3),
  'llama.embedding_length': u32(64),
  'llama.context_length': u32(1024),
  'llama.attention.head_count': u32(4),
  'llama.attention.head_count_kv': u32(2),
}

const tensors: readonly GgufTensorInput[] = [
  { name: 'token_embd.weight', format: 'Q4_K', shape: [4, 256], values: () => new Float32Array(1024) },
  ...[0, 1, 2].map(i => ({
    name: `blk.${i}.ffn_up.weight`,
    format: i === 2 ? ('Q8_0' as const) : ('F16' as const),
    shape: [2, 32],
    values: () => new Float32Array(64),
  })),
]
const weightBytes = 4 * 144 + 2 * 128 + 2 * 34

async function written(name: string, metadata: Readonly<Record<string, GgufValue>>): Promise<string> {
  const file = path.join(folder, name)
  await writeGguf(file, { metadata, tensors })
  return file
}

t.test('a model', async t => {
  const file = await written('usual.gguf', {
    ...usual,
    'general.name': string('A \x1b[2J name'),
    'llama.attention.layer_norm_rms_epsilon': { type: 'f32', value: Math.fround(1e-5) },
    'tokenizer.chat_template': string('{{ x }}'.repeat(100)),
    'tokenizer.ggml.tokens': {
      type: 'array',
      of: 'string',
      value: Array.from({ length: 300 }, (_, i) => `t${i}`),
    },
    big: { type: 'u64', value: 2n ** 63n },
  })
  // 2 · 3 layers · 2 heads · 16 elements · 2 bytes.
  const perToken = 2 * 3 * 2 * 16 * 2
  const about = inspect(file, '--json').json()
  t.match(about, {
    kind: 'gguf',
    version: 3,
    parts: [file],
    architecture: 'llama',
    parameters: 1024 + 3 * 64,
    memory: {
      context: 1024,
      weightBytes,
      cacheBytes: 1024 * perToken,
      totalBytes: weightBytes + 1024 * perToken,
    },
    formats: {
      Q4_K: { tensors: 1, parameters: 1024, bytes: 576 },
      F16: { tensors: 2, parameters: 128, bytes: 256 },
      Q8_0: { tensors: 1, parameters: 64, bytes: 68 },
    },
    metadata: {
      'llama.block_count': { type: 'u32', value: 3 },
      'tokenizer.ggml.tokens': {
        type: 'array',
        of: 'string',
        count: 300,
        first: ['t0', 't1', 't2', 't3', 't4'],
      },
      big: { type: 'u64', value: String(2n ** 63n) },
    },
  })
  t.match(about.tensors[0], { name: 'token_embd.weight', format: 'Q4_K', shape: [4, 256], bytes: 576 })
  t.equal(about.metadata['tokenizer.chat_template'].value.length, 700, 'strings are whole')
  t.equal(inspect(file, '--context', '100', '--json').json().memory.cacheBytes, 100 * perToken)

  const { status, stdout } = inspect(file, '--context', '8192')
  t.equal(status, 0)
  t.match(stdout, /architecture +llama\n/)
  t.match(stdout, 'A \\x1b[2J name')
  t.match(stdout, /cache of 8192 tokens +3\.0 MiB in f16\n/)
  t.match(stdout, /memory +3\.0 MiB for weights and cache/)
  t.match(stdout, /Q4_K +│ +1 │ +1\.02 k │ +576 B │ +4\.50/)
  t.match(stdout, /blk\.\*\.ffn_up\.weight │ \[2, 32\] +│ F16 +│ +2 │ +256 B/)
  t.match(stdout, /blk\.\*\.ffn_up\.weight │ \[2, 32\] +│ Q8_0 +│ +1 │ +68 B/)
  t.match(stdout, /tokens +│ string\[300\] +│ "t0", "t1", "t2", "t3", "t4", …/)
  t.match(stdout, /epsilon +│ f32 +│ 0\.00001 /)
  t.match(stdout, /\(700 characters\)/)
  t.notMatch(stdout, '\x1b[2J', 'what a terminal obeys is escaped')
})

t.test('the cache of other models', async t => {
  const memory = async (change: Readonly<Record<string, GgufValue>>) => {
    const metadata = Object.fromEntries(Object.entries({ ...usual, ...change }).filter(([, value]) => value))
    return memoryOf(await readGguf(await written('other.gguf', metadata)), 10)
  }
  const none = undefined as unknown as GgufValue
  const heads = (...counts: number[]): GgufValue => ({
    type: 'array',
    of: 'i32',
    value: Int32Array.from(counts),
  })
  const cache = async (change: Readonly<Record<string, GgufValue>>) =>
    (await memory(change)).cacheBytes! / 10 / 2
  t.equal(await cache({ 'llama.attention.head_count_kv': none }), 2 * 3 * 4 * 16, 'every head has keys')
  t.equal(await cache({ 'llama.attention.head_count_kv': heads(1, 0, 4) }), 2 * (1 + 0 + 4) * 16)
  const sizes = { 'llama.attention.key_length': u32(24), 'llama.attention.value_length': u32(8) }
  t.equal(await cache(sizes), 3 * 2 * (24 + 8))
  const notes: [Readonly<Record<string, GgufValue>>, RegExp][] = [
    [{ 'llama.attention.head_count_kv': heads(1, 2) }, /3 layers, but the heads of 2/],
    [{ 'llama.block_count': none }, /no layers/],
    [{ 'llama.embedding_length': none }, /no size of a head/],
    [{ 'llama.attention.head_count': u32(0) }, /make no sense/],
    [{ 'llama.attention.kv_lora_rank': u32(8) }, /MLA/],
    [{ 'general.architecture': none }, /no architecture/],
  ]
  for (const [change, note] of notes)
    t.match(await memory(change), { cacheBytes: null, totalBytes: null, note })
  t.match(await memory({ 'llama.attention.sliding_window': u32(512) }), {
    cacheBytes: 3840,
    note: /512 tokens only/,
  })
  const ones = new Int32Array(200_000).fill(1)
  const many: Readonly<Record<string, GgufValue>> = {
    'llama.attention.head_count': { type: 'array', of: 'i32', value: ones },
  }
  t.match(
    await memory({ ...many, 'llama.attention.head_count_kv': none }),
    { cacheBytes: null },
    'absurd counts',
  )
})

t.test('no context named', async t => {
  const context = async (limit: GgufValue[]) => {
    const metadata = { ...usual, ...(limit[0] && { 'llama.context_length': limit[0] }) }
    return memoryOf(await readGguf(await written('context.gguf', metadata)), undefined).context
  }
  t.equal(await context([u32(512)]), 512, 'that of the model')
  t.equal(await context([u32(131_072)]), 8192, 'of which a part is usual')
})

t.test('usage and broken files', async t => {
  const file = await written('good.gguf', usual)
  t.match(inspect(file, '--profile'), {
    status: 2,
    stderr: /--profile is for ONNX models; a GGUF file takes --context/,
  })
  t.match(inspect(file, '--context', '0'), { status: 2, stderr: /integer from 1/ })
  const other = path.join(folder, 'model.onnx')
  writeFileSync(other, 'x')
  t.match(inspect(other, '--context', '5'), {
    status: 2,
    stderr: /--context is for language models, and .*model.onnx is none/,
  })
  const broken = path.join(folder, 'broken.gguf')
  writeFileSync(broken, rawGguf({ tensors: [{ sizes: [2n ** 40n] }] }))
  t.match(inspect(broken), { status: 1, stderr: /broken\.gguf: tensor 'x' is F32/, stdout: '' })
  t.match(inspect(path.join(folder, 'none.gguf')), { status: 1, stderr: /none\.gguf: no such file/ })
})

t.test('golden files', { skip: noGolden }, async t => {
  const stories = inspect(path.join(data, 'llm/stories260K/gguf/stories260K-q4_0.gguf'), '--json').json()
  t.match(stories, { parameters: 260_032, memory: { context: 512, cacheBytes: 2 * 5 * 4 * 8 * 512 * 2 } })
  const gemma = inspect(path.join(data, 'lm-golden/gguf/gemma3.Q4_0.gguf'), '--json').json()
  t.match(gemma, { architecture: 'gemma3', memory: { note: /16 tokens only/ } })
})
