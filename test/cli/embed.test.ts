// embed: tables of similarities, JSON lines, files, texts from stdin; what is refused.
import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { readSafetensors, TextModel } from 'dgx-spark'
import t from 'tap'
import { parseNpy } from '#lib/io/npy.js'
import { modules, writeEncoderFolder } from '../fixtures/text/encoder-folder.js'

const main = path.resolve(import.meta.dirname, '../../dist/cli/main.js')
const folder = t.testdir({})
const model = path.join(folder, 'encoder')

function embed(args: readonly string[], input?: string) {
  const run = ['--no-warnings', main, 'embed', model, ...args, '--backend', 'cpu']
  return spawnSync(process.execPath, run, { encoding: 'utf8', input })
}

const texts = ['the bell rings', 'red house', 'the bell rings']

t.before(async () => {
  const prompts = { query: 'query ' }
  await writeEncoderFolder(model, {
    ...modules({ pooling_mode_mean_tokens: true }),
    'config_sentence_transformers.json': { prompts },
  })
})

t.test('a table of similarities', async t => {
  const { status, stdout } = embed(texts)
  t.equal(status, 0)
  const [first, second, third] = stdout
    .split('\n')
    .filter(line => line.includes(' 0.') || / 1\.000/.test(line))
  t.match(first, /1 .*the bell rings.* 1\.000 .* -?0\.\d{3} .* 1\.000/)
  t.match(second, /2 .*red house.* -?0\.\d{3} .* 1\.000 .* -?0\.\d{3}/)
  t.match(third, /3 .*the bell rings/)
})

t.test('lines of JSON, of the lines of stdin', async t => {
  using reference = await TextModel.load(model, { backend: 'cpu' })
  const { stdout } = embed(['-', '--json'], `${texts.join('\r\n')}\n`)
  const lines = stdout
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line))
  t.strictSame(
    lines.map(({ text }) => text),
    texts,
  )
  const expected = await reference.embed(texts)
  t.strictSame(
    lines.map(({ embedding }) => Float32Array.from(embedding)),
    expected,
  )
  const options = ['--json', '--pooling', 'cls', '--no-normalize', '--dimensions', '5', '--max-length', '4']
  const other = JSON.parse(embed(['the bell rings', ...options, '--prompt-name', 'query']).stdout)
  const [vector] = await reference.embed('the bell rings', {
    pooling: 'cls',
    normalize: false,
    dimensions: 5,
    maxLength: 4,
    promptName: 'query',
  })
  t.strictSame(Float32Array.from(other.embedding), vector)
})

t.test('files', async t => {
  using reference = await TextModel.load(model, { backend: 'cpu' })
  const expected = (await reference.embed(texts)).flatMap(vector => Array.from(vector))
  const [lines, npy, safetensors] = ['lines.txt', 'out.npy', 'out.safetensors'].map(name =>
    path.join(folder, name),
  ) as [string, string, string]
  writeFileSync(lines, texts.join('\n'))
  t.match(embed(['--file', lines, '--output', npy]).stdout, /wrote 3 vectors of 24 elements to .*out\.npy/)
  const { data, shape } = parseNpy(readFileSync(npy))
  t.strictSame([Array.from(data as Float32Array), shape], [expected, [3, 24]])
  t.equal(embed([...texts, '-o', safetensors]).status, 0)
  const tensor = (await readSafetensors(safetensors)).tensors.get('embeddings')
  t.strictSame(Array.from(tensor!.data as Float32Array), expected)
})

t.test('wrong usage', async t => {
  const wrong = (args: readonly string[], message: RegExp, input?: string): void => {
    const { status, stderr } = embed(args, input)
    t.equal(status, 2, args.join(' '))
    t.match(stderr, message)
  }
  wrong(['x', '--file', 'y'], /texts and --file exclude each other/)
  wrong([], /stdin is empty/, '')
  wrong(['x', '--output', 'vectors.txt'], /ends in \.npy or \.safetensors/)
  wrong(['x', '--pooling', 'max'], /Allowed choices are mean, cls, last/)
  wrong(
    Array.from({ length: 13 }, () => 'x'),
    /12 texts at most, but there are 13: use --json or --output/,
  )
})
