// dgx-spark place: the report, the JSON document, wrong usage, and the page as a browser shows it.
import { spawnSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { writeSafetensors } from 'dgx-spark'
import t from 'tap'
import { serializeOnnx } from '#lib/io/onnx/write.js'
import { Browser, noBrowser } from '../fixtures/browser.js'
import { chainGraph } from '../fixtures/placement.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')
const root = t.testdir({})

function place(...args: string[]) {
  const result = spawnSync(process.execPath, ['--no-warnings', main, 'place', ...args], { encoding: 'utf8' })
  return { ...result, json: () => JSON.parse(result.stdout) }
}

const hostile = `<img>&"'broken`
const card = { backend: 'cuda', bandwidth: 1e9, flops: { f32: 1e12 } }

function writeFleet(name: string, fleet: object): string {
  const file = path.join(root, name)
  writeFileSync(file, JSON.stringify(fleet))
  return file
}

/** Two devices, each of which holds some of the layers. */
const fleet = writeFleet('fleet.json', {
  nodes: [
    { name: 'spark', devices: [{ ...card, memory: 50_000 }] },
    { name: hostile, devices: [{ ...card, memory: 70_000, bandwidth: 5e8 }] },
    { name: 'phone', devices: [{ ...card, memory: 100 }] },
  ],
  network: { latency: 1e-6, bandwidth: 1e9 },
})

/** A folder with a llama of 4 layers whose head is its embedding, f32. */
async function writeLlama(): Promise<string> {
  const folder = path.join(root, 'llama')
  mkdirSync(folder)
  const tensor = (...shape: number[]) => ({
    dtype: 'F32' as const,
    shape,
    data: new Float32Array(shape.reduce((a, b) => a * b, 1)),
  })
  const layer = {
    'self_attn.q_proj': tensor(16, 16),
    'self_attn.k_proj': tensor(8, 16),
    'self_attn.v_proj': tensor(8, 16),
    'self_attn.o_proj': tensor(16, 16),
    'mlp.gate_proj': tensor(32, 16),
    'mlp.up_proj': tensor(32, 16),
    'mlp.down_proj': tensor(16, 32),
    input_layernorm: tensor(16),
    post_attention_layernorm: tensor(16),
  }
  await writeSafetensors(path.join(folder, 'model.safetensors'), {
    'model.embed_tokens.weight': tensor(100, 16),
    'model.norm.weight': tensor(16),
    ...Object.fromEntries(
      [0, 1, 2, 3].flatMap(l =>
        Object.entries(layer).map(([name, value]) => [`model.layers.${l}.${name}.weight`, value]),
      ),
    ),
  })
  const config = {
    ...{ model_type: 'llama', hidden_size: 16, intermediate_size: 32, vocab_size: 100, rms_norm_eps: 1e-5 },
    ...{ num_hidden_layers: 4, num_attention_heads: 2, num_key_value_heads: 1, max_position_embeddings: 64 },
  }
  writeFileSync(path.join(folder, 'config.json'), JSON.stringify(config))
  return folder
}

t.test('a language model', async t => {
  const llama = await writeLlama()
  const document = place(llama, '--fleet', fleet, '--json').json()
  t.match(document, { model: 'llama', objective: 'latency', exact: true, load: { context: 64, batch: 1 } })
  t.strictSame(document.layers, ['embedding', '0', '1', '2', '3', 'head'])
  const state = 64 * 2 * 8 * 2 // tokens, keys and values, elements, f16
  const layer = 4 * (2 * 256 + 2 * 128 + 3 * 512 + 2 * 16)
  const norm = 4 * 16
  const workspace = (names: string): number => (names.includes('head') ? 4 * 100 : 16 * 16)
  const held = document.stages.reduce(
    (sum: number, stage: { bytes: number; layers: string }) => sum + stage.bytes - workspace(stage.layers),
    0,
  )
  // The head is the embedding: two devices each keep it.
  t.equal(held, 4 * (layer + state) + 2 * 6400 + norm)
  t.match(document.unused, [{ device: 'phone', why: /needs .* phone has 0\.0 MB free$/ }])

  const { stdout, status } = place(llama, '--fleet', fleet)
  t.equal(status, 0)
  t.match(stdout, /model +6 layers, 0\.0 MB of weights/)
  t.match(stdout, /A+\|B+/)
  t.match(stdout, /what would help/)
  t.match(stdout, /left out/)
  const far = writeFleet('far.json', {
    nodes: [
      { name: 'near', devices: [{ ...card, memory: 1e9 }] },
      { name: 'far', devices: [{ ...card, memory: 1e9, bandwidth: 5e8 }] },
    ],
    network: { latency: 1e-3, bandwidth: 1e9 },
  })
  t.match(place(llama, '--fleet', far).stdout, /with it a step would take .*, \d+ % more; llama fits on near/)
})

t.test('pins, objectives and constraints', async t => {
  const llama = path.join(root, 'llama')
  const pinned = place(
    llama,
    '--fleet',
    fleet,
    '--pin',
    '0-1=spark',
    '--pin',
    `head=${hostile}`,
    '--json',
  ).json()
  t.equal(pinned.stages.at(-1).devices[0], hostile)
  const wrong = place(llama, '--fleet', fleet, '--pin', '0-9=spark')
  t.equal(wrong.status, 1)
  t.match(wrong.stderr, /there is no layer '9': layers are embedding, 0, 1, 2, 3, head/)
  const large = place(llama, '--fleet', fleet, '--sequences', '20')
  t.equal(large.status, 1)
  t.match(large.stderr, /needs .* with a context of 64 tokens and 20 sequences, /)
  t.equal(
    place(llama, '--fleet', fleet, '--objective', 'throughput', '--json').json().objective,
    'throughput',
  )
})

t.test('an ONNX model', async t => {
  const file = path.join(root, 'chain.onnx')
  writeFileSync(file, serializeOnnx(chainGraph(6)))
  const document = place(file, '--fleet', fleet, '--json').json()
  t.strictSame(document.layers, ['0', '1', '2', '3', '4', '5'])
  t.equal(document.promptSeconds, undefined)
  t.equal(document.stages.length, 1)
})

t.test('the schema, and wrong usage', async t => {
  const schema = place('--schema').json()
  t.strictSame(schema.required, ['nodes'])
  t.ok(schema.$comment.presets.GB10.source)
  for (const [args, message] of [
    [[], /missing a model/],
    [['model.gguf'], /give --fleet <file>/],
    [['nothing', '--fleet', fleet], /nothing/],
    [
      [root, '--fleet', writeFleet('wrong.json', { nodes: [{ name: 'a' }] })],
      /wrong\.json\.nodes\.0 lacks 'devices'/,
    ],
    [[root, '--fleet', fleet], /has no safetensors/],
  ] as const) {
    const { status, stderr } = place(...args)
    t.not(status, 0)
    t.match(stderr, message)
  }
})

t.test('the page', { skip: noBrowser }, async t => {
  const file = path.join(root, 'page.html')
  const { stdout, status, stderr } = place(path.join(root, 'llama'), '--fleet', fleet, '--html', file)
  t.equal(status, 0, stderr)
  t.match(stdout, /wrote .*page\.html/)
  const browser = new Browser()
  t.teardown(() => browser.close())
  await browser.prefer('light')
  await browser.open(file)
  const text = (id: string): Promise<string> =>
    browser.evaluate(`document.getElementById('${id}').textContent`)
  t.match(await text('now'), /^the embedding on /)
  await browser.press('ArrowRight')
  t.match(await text('now'), /^layer 0 on /)
  await browser.press('End')
  t.match(await text('now'), /^the head on /)
  await browser.press('Home')
  t.match(await text('now'), /^the embedding on /)
  t.equal(await browser.evaluate("document.querySelectorAll('.strip button').length"), 6)
  t.equal(await browser.evaluate('document.title'), 'Placement: llama')
  t.equal(await browser.evaluate("document.getElementById('theme').textContent"), 'Dark')
  await browser.evaluate("document.getElementById('theme').click()")
  t.equal(await browser.evaluate('document.documentElement.dataset.theme'), 'dark')
  t.ok(await browser.evaluate('document.documentElement.scrollWidth <= innerWidth'))
  t.strictSame(browser.complaints, [])
})
