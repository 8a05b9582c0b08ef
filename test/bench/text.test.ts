// Rows of language models: the file of random weights, rows of a small model, and their peer in transformers (a Python with torch
// and transformers: DGX_SPARK_PYTHON, or python3).
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { readGguf, type TextModel } from 'dgx-spark'
import t from 'tap'
import { decodeBlocks } from '#lib/weights/blocks/decode.js'
import { encodeBlocks } from '#lib/weights/blocks/encode.js'
import { type Case, format, measure, type Row } from '../../bench/harness.js'
import { matrixElements, writeRandomLlama } from '../../bench/random-llama.js'
import { expectAgreement, textRows } from '../../bench/rows/text.js'
import { rows } from '../../bench/rows.js'
import { besidePeers, type PeerRow, textPeers } from '../../bench/torch-peers.js'

const sizes = { hidden: 64, inner: 192, layers: 2, heads: 4, kvHeads: 2, headSize: 16, vocabulary: 300 }
const lengths = { prompt: 21, deep: 45 }
const limits = { copyGBs: 10, gemmGFLOPs: 100 }

const scratch = mkdtempSync(path.join(tmpdir(), 'dgx-spark-text-rows-'))
t.teardown(() => rmSync(scratch, { recursive: true }))

async function rowsOf(wanted?: Parameters<typeof textRows>[4]): Promise<Row[]> {
  const measured: Row[] = []
  for await (const row of textRows('cpu', 'Q4_0', sizes, lengths, wanted))
    measured.push(await measure(row, limits))
  return measured
}

t.test('matrices repeat rows that are encoded once', async t => {
  for (const name of ['Q4_0', 'BF16', 'NVFP4', 'MXFP4'] as const) {
    const file = path.join(scratch, `${name}.gguf`)
    await writeRandomLlama(file, name, sizes)
    const { tensors } = await readGguf(file)
    const matrices = [...tensors.values()].filter(({ shape }) => shape.length === 2)
    const elements = matrices.reduce((sum, { shape: [rows = 0, cols = 0] }) => sum + rows * cols, 0)
    t.equal(elements, matrixElements(sizes), name)
    const data = await tensors.get('token_embd.weight')!.load()
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
    const row = bytes.length / sizes.vocabulary
    t.strictSame(bytes.subarray(64 * row, 128 * row), bytes.subarray(0, 64 * row), `${name}: rows 64 to 127`)
    t.strictSame(bytes.subarray(256 * row), bytes.subarray(0, 44 * row), `${name}: the last rows`)
    const values = decodeBlocks(name, bytes)
    const isEncoded = name === 'Q4_0' || name === 'BF16'
    const cols = isEncoded ? sizes.hidden : 2048
    const square = (cols * values.reduce((sum, value) => sum + value * value, 0)) / values.length
    t.ok(square > 1 / 2 && square < 2, `${name}: a row has a length of about 1: ${square}`)
    if (isEncoded) t.strictSame(encodeBlocks(name, values), bytes, `${name}: encoded`)
  }
})

t.test('rows of a small model', async t => {
  const measured = await rowsOf()
  t.match(measured, [
    { name: 'text prefill', shape: '21 tokens', dtype: 'q4_0', unit: 'token/s' },
    { name: 'text decode', shape: 'depth 0 x1', sizes: { depth: 1, texts: 1 } },
    { name: 'text decode', shape: 'depth 0 x8', sizes: { depth: 1, texts: 8 } },
    { name: 'text decode', shape: 'depth 45 x1', sizes: { depth: 45, texts: 1 } },
  ])
  for (const { shape, rate, medianMs, percentOfLimit } of measured) {
    const tokens = shape === '21 tokens' ? 21 : shape.endsWith('x8') ? 8 : 1
    t.ok(Math.abs((rate * medianMs) / 1000 - tokens) < 1e-6, `${shape}: ${rate} tokens a second`)
    t.ok(percentOfLimit > 0)
  }
  t.match(format(measured[0]!), / token\/s /)
  t.strictSame(await rowsOf(() => false), [], 'no model without a wanted row')
  const chosen = await rowsOf(({ shape }) => shape === 'depth 0 x1')
  t.equal(chosen.length, 1)
})

t.test('families are chosen by name', async t => {
  const named: string[] = []
  const kernels = { backend: 'js', supports: () => false } as never
  const choice = { families: /^(?:text|blocks)$/, withTargets: false, wanted: () => true }
  for await (const { name } of rows(kernels, null, choice)) named.push(name)
  t.strictSame(named, [], 'neither has rows here, and no other family is asked')
})

t.test('a model that is wrong is not timed', async t => {
  const model = (ours: number, whole: number): TextModel =>
    ({
      tokenizer: { vocabularySize: 300 },
      generate: () => ({ result: async () => ({ ids: [1], logprobs: [ours] }) }),
      logProbabilities: async () => ({ logprobs: [-9, whole] }),
    }) as never
  const prompt = Int32Array.of(1, 2)
  await expectAgreement(model(-2, -2.001), prompt, 1)
  await t.rejects(expectAgreement(model(-2, -3), prompt, 1), /-2 should be -3/)
  await t.rejects(expectAgreement(model(-Math.log(300), -Math.log(300)), prompt, 1), /is chance/)
})

t.test('a run that is prepared is not one of a batch', async t => {
  const order: string[] = []
  const bench: Case = {
    ...{ name: 'a', shape: '', dtype: '', device: 'cuda', bytes: 1 },
    prepare: () => order.push('prepare'),
    run: () => order.push('run'),
    check: () => {},
  }
  await measure(bench, limits)
  t.strictSame(new Set(order.filter((_, i) => i % 2 === 0)), new Set(['prepare']))
  t.strictSame(new Set(order.filter((_, i) => i % 2 === 1)), new Set(['run']))
})

const python = process.env.DGX_SPARK_PYTHON ?? 'python3'
const found = spawnSync(python, ['-c', 'import torch, transformers'], { stdio: 'ignore' }).status === 0
const skip = !found && 'no Python with torch and transformers: set DGX_SPARK_PYTHON'
t.test('transformers beside rows of every dtype', { skip }, t => {
  const common = {
    device: 'cuda',
    p10Ms: 1,
    medianMs: 1,
    p90Ms: 1,
    percentOfLimit: 1,
    spread: 0,
    noisy: false,
  }
  const row = (name: string, shape: string, dtype: string, more: object): Row => ({
    ...{ ...common, name, shape, dtype, rate: 1000, unit: 'token/s' as const },
    sizes: { ...sizes, prompt: 0, depth: 1, texts: 1, steps: 16, ...more },
  })
  const ours = [
    row('text prefill', '21 tokens', 'bf16', { prompt: 21 }),
    row('text decode', 'depth 45 x3', 'bf16', { depth: 45, texts: 3 }),
    row('text decode', 'depth 45 x3', 'q4_0', { depth: 45, texts: 3 }),
  ]
  const peers = textPeers(ours, { device: 'cpu', threads: 1, cpuTime: false })
  const about = ({ name, dtype, peer, error }: PeerRow) => [name, dtype, error ?? peer].join(', ')
  t.strictSame(peers.map(about), [
    'text prefill, bf16, transformers bf16',
    'text decode, bf16, transformers bf16, static cache',
    'text decode, bf16, transformers bf16',
    'text decode, q4_0, transformers bf16, static cache',
    'text decode, q4_0, transformers bf16',
  ])
  const beside = besidePeers(
    ours,
    peers.map(peer => ({ ...peer, ratio: 2 })),
  )
  t.match(beside[2], { dtype: 'q4_0', peer: 'transformers bf16, static cache', peerRatio: 2 })
  t.end()
})
