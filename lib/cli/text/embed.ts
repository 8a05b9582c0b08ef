// embed.ts: `dgx-spark embed`: vectors of texts, and how similar texts are.
import { text as readAll } from 'node:stream/consumers'
import type { Command } from 'commander'
import { type BackendName, backendNames } from '../../core/config.js'
import { readText } from '../../io/read-file.js'
import { Tensor } from '../../memory/tensor.js'
import { type Pooling, poolings } from '../../text/architectures/encoder.js'
import type { EmbedOptions } from '../../text/text-options.js'
import { choice, UsageError, withExamples } from '../command.js'
import { integerFrom, pathFrom } from '../numbers.js'
import { jsonText, print } from '../output.js'
import { saveOutputs } from '../outputs.js'
import { printTable } from '../table.js'
import { loadModel, modelArgument } from './load-model.js'

interface Flags {
  file?: string
  pooling?: Pooling
  normalize: boolean
  prompt?: string
  promptName?: string
  maxLength?: number
  dimensions?: number
  output?: string
  json?: boolean
  backend?: BackendName
  threads?: number
}

/** Texts that a table of similarities has columns for. */
const shownTexts = 12

/** Characters of a text in a table. */
const shownCharacters = 40

/** Gives the command its options and its action. */
export function addEmbed(command: Command): void {
  command
    .argument(...modelArgument)
    .argument('[texts...]', 'texts; - or nothing: the lines of stdin')
    .option('--file <path>', 'a file with one text a line', pathFrom)
    .addOption(choice('--pooling <name>', 'what stands for a text (default: as the model says)', poolings))
    .option('--no-normalize', 'keep the lengths of the vectors')
    .option('--prompt <text>', 'text in front of each text')
    .option('--prompt-name <name>', "one of the model's own prompts, such as query")
    .option('--max-length <tokens>', 'tokens that a text is cut to', integerFrom(1))
    .option('--dimensions <count>', 'only the first elements of vectors', integerFrom(1))
    .option('-o, --output <file>', 'write the vectors to a .npy or .safetensors file', pathFrom)
    .option('--json', 'print a line of JSON for each text')
    .addOption(choice('--backend <name>', 'where it is computed (default: the best)', backendNames))
    .option('--threads <count>', 'threads of the CPU (default: one per core)', integerFrom(0))
    .action(run)
  withExamples(
    command,
    "dgx-spark embed all-MiniLM-L6-v2 'a bell rings' 'bells are ringing' 'def f(x):'",
    "dgx-spark embed Qwen3-Embedding-0.6B 'what rings?' --prompt-name query --json",
    'dgx-spark embed bge-small.gguf --file lines.txt --output vectors.npy',
  )
}

async function run(source: string, given: readonly string[], flags: Flags): Promise<void> {
  const { output, json } = flags
  if (output !== undefined && !/\.(npy|safetensors)$/.test(output))
    throw new UsageError(`--output ${output}: give a name that ends in .npy or .safetensors`)
  const texts = await textsOf(given, flags.file)
  if (!json && output === undefined && texts.length > shownTexts) {
    const message = `a table shows ${shownTexts} texts at most, but there are ${texts.length}`
    throw new UsageError(`${message}: use --json or --output`)
  }
  using model = await loadModel(source, flags)
  const vectors = await model.embed(texts, embedOptions(flags))
  if (output !== undefined) await save(vectors, output)
  if (json) {
    for (const [i, text] of texts.entries()) print(jsonText({ text, embedding: Array.from(vectors[i]!) }))
  } else if (output === undefined) printSimilarities(texts, vectors)
  else print(`wrote ${vectors.length} vectors of ${vectors[0]!.length} elements to ${output}`)
}

/** Texts of the command line, or the lines of a file or of stdin. */
async function textsOf(given: readonly string[], file: string | undefined): Promise<readonly string[]> {
  const isStdin = given.length === 0 || (given.length === 1 && given[0] === '-')
  if (file !== undefined && given.length > 0) throw new UsageError('texts and --file exclude each other')
  if (file === undefined && !isStdin) return given
  if (file === undefined && given.length === 0 && process.stdin.isTTY)
    throw new UsageError("texts are missing: give them behind the model, or '-' and type lines")
  const all = file === undefined ? await readAll(process.stdin) : await readText(file)
  const lines = all.replace(/\r?\n$/, '').split(/\r?\n/)
  if (all !== '') return lines
  throw new UsageError(file === undefined ? 'stdin is empty' : `${file} is empty`)
}

const embedOptions = ({ pooling, normalize, ...flags }: Flags): EmbedOptions => ({
  ...(pooling ? { pooling } : {}),
  ...(normalize ? {} : { normalize }),
  ...(flags.prompt === undefined ? {} : { prompt: flags.prompt }),
  ...(flags.promptName === undefined ? {} : { promptName: flags.promptName }),
  ...(flags.maxLength === undefined ? {} : { maxLength: flags.maxLength }),
  ...(flags.dimensions === undefined ? {} : { dimensions: flags.dimensions }),
})

/** Writes vectors as one tensor, [texts, elements]. */
async function save(vectors: readonly Float32Array[], target: string): Promise<void> {
  const width = vectors[0]!.length
  const all = new Float32Array(vectors.length * width)
  for (const [i, vector] of vectors.entries()) all.set(vector, i * width)
  await saveOutputs({ embeddings: Tensor.from(all, { shape: [vectors.length, width] }) }, target)
}

/** Cosines of the angles between all vectors. */
function printSimilarities(texts: readonly string[], vectors: readonly Float32Array[]): void {
  const short = (text: string): string =>
    text.length > shownCharacters ? `${text.slice(0, shownCharacters - 1)}…` : text
  const numbers = texts.map((_, i) => `${i + 1}`)
  const rows = texts.map((text, i) => [
    `${i + 1}`,
    short(text),
    ...vectors.map(other => cosine(vectors[i]!, other).toFixed(3)),
  ])
  printTable(['', 'text', ...numbers], rows, [0, ...numbers.map((_, i) => i + 2)])
}

function cosine(a: Float32Array, b: Float32Array): number {
  const dot = (x: Float32Array, y: Float32Array): number =>
    x.reduce((sum, value, i) => sum + value * y[i]!, 0)
  const lengths = Math.sqrt(dot(a, a) * dot(b, b))
  return lengths > 0 ? dot(a, b) / lengths : 0
}
