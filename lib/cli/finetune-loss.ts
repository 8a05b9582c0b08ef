// finetune-loss.ts: losses on the command line: a name, a name with settings, or a file.
import { readFile } from 'node:fs/promises'
import { didYouMean } from '../core/did-you-mean.js'
import type { Graph } from '../graph/graph.js'
import type { Loss } from '../graph/rewrites/losses.js'
import { readOnnx } from '../io/onnx/read.js'
import { UsageError } from './command.js'

const pairs = ['cross-entropy', 'nll', 'mse', 'l1', 'kl']
const pathValues = ['pathMean', 'pathStd', 'pathProb', 'laneLines', 'roadEdges']

/** Settings of each loss by its name. */
const settingsOf: Readonly<Record<string, readonly string[]>> = {
  ...Object.fromEntries(pairs.map(name => [name, ['output', 'target']])),
  'laplacian-nll': ['mean', 'std', 'target', 'epsilon'],
  'gaussian-nll': ['mean', 'std', 'target', 'epsilon'],
  'path-distillation': pathValues,
  'feature-distillation': ['output', 'target', 'temperature'],
}

/** Settings that have no default. */
const requiredOf: Readonly<Record<string, readonly string[]>> = {
  'laplacian-nll': ['mean', 'std'],
  'gaussian-nll': ['mean', 'std'],
  'feature-distillation': ['output'],
}

/** Names of the losses. */
export const lossNames = Object.keys(settingsOf)

/** Whether labels of the data are class numbers. */
export const isClassification = (loss: string): boolean => /^(cross-entropy|nll)(:|$)/.test(loss)

/**
 * Reads a loss: `mse`, `laplacian-nll:mean=mu,std=sigma`, an ONNX file whose output is the loss, or a JSON file of terms as
 * `TrainerOptions.loss` takes them.
 * @throws UsageError, SparkError ERR_IO for a file that cannot be read
 */
export async function parseLoss(text: string, model: Graph): Promise<Loss | Graph> {
  if (text.endsWith('.onnx')) return readOnnx(text)
  if (text.endsWith('.json')) return parseTerms(text)
  const [name = '', rest = ''] = text.split(/:(.*)/s)
  const known = Object.hasOwn(settingsOf, name) ? settingsOf[name]! : undefined
  if (!known) {
    const hint = didYouMean(name, lossNames)
    throw new UsageError(
      `--loss ${text}: no such loss${hint}; there are ${lossNames.join(', ')}, .onnx and .json files`,
    )
  }
  const settings = Object.fromEntries(
    rest
      .split(',')
      .filter(part => part !== '')
      .map(part => part.split(/=(.*)/s) as [string, string | undefined]),
  )
  for (const [key, value] of Object.entries(settings)) {
    if (known.includes(key) && value) continue
    const hint = didYouMean(key, known)
    throw new UsageError(
      `--loss ${text}: '${key}'${hint} must be one of ${known.join(', ')}, with = and a value`,
    )
  }
  const outputs = model.outputs.map(output => output.name).join(', ')
  const missing = (requiredOf[name] ?? []).filter(key => !Object.hasOwn(settings, key))
  if (missing.length > 0) {
    const example = `--loss ${name}:${missing.map(key => `${key}=<output>`).join(',')}`
    throw new UsageError(`--loss ${name} needs ${missing.join(' and ')}: ${example}; outputs: ${outputs}`)
  }
  if (name !== 'path-distillation') return { type: name, ...withNumbers(settings) } as unknown as Loss
  if (rest !== '') return { type: name, outputs: settings, targets: settings }
  throw new UsageError(
    `--loss ${name} needs some of ${pathValues.join(', ')}: --loss ${name}:pathMean=<output>,…; outputs: ${outputs}`,
  )
}

const withNumbers = (settings: Record<string, string | undefined>) =>
  Object.fromEntries(
    Object.entries(settings).map(([key, value]) => [
      key,
      key === 'epsilon' || key === 'temperature' ? Number(value) : value,
    ]),
  )

async function parseTerms(file: string): Promise<Loss> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as Loss
  } catch (error) {
    throw new UsageError(`--loss ${file}: ${(error as Error).message}`)
  }
}
