// peft-folder.ts: the adapter of one layer as a folder in PEFT's format.
import { SparkError } from '../../core/errors.js'
import type { Tensor } from '../../memory/tensor.js'
import { readPeftAdapter, writePeftAdapter } from '../peft/adapter-folder.js'
import { newConfig } from '../peft/config.js'

/** The adapter of a linear layer, as read from or written to a folder. */
export interface LinearAdapter {
  rank: number
  alpha: number
  rslora: boolean
  dropout: number
  /** [rank, in] */
  a: Tensor
  /** [out, rank] */
  b: Tensor
  /** [out] */
  magnitude: Tensor
  /** [out]; replaces the bias of the base layer. */
  bias?: Tensor
}

/** Reads the adapter of `module`, or of the only module. See DoRALinear.load. */
export async function loadLinear(folder: string, module?: string): Promise<LinearAdapter> {
  const { config, modules } = await readPeftAdapter(folder)
  const names = [...modules.keys()]
  const name = module ?? (names.length === 1 ? names[0]! : undefined)
  const found = name === undefined ? undefined : modules.get(name)
  if (!found) {
    const problem =
      name === undefined ? 'has several modules, choose one with options.module' : `has no '${name}'`
    throw new SparkError('ERR_ARGUMENT', `the adapter in ${folder} ${problem}: ${names.join(', ')}`)
  }
  if (found.kind !== 'linear') {
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `module '${name}' in ${folder} is a ${found.kind} layer, not a linear one`,
    )
  }
  if (!found.magnitude) {
    throw new SparkError('ERR_UNSUPPORTED', `the adapter in ${folder} is LoRA (use_dora is false), not DoRA`)
  }
  const { rank, alpha, a, b, magnitude, bias } = found
  const { useRslora: rslora, loraDropout: dropout } = config
  return { rank, alpha, rslora, dropout, a, b, magnitude, ...(bias && { bias }) }
}

/** Writes the adapter of one layer. See DoRALinear.save. */
export async function saveLinear(
  folder: string,
  adapter: LinearAdapter,
  { module = 'linear', baseModel }: { module?: string; baseModel?: string },
): Promise<void> {
  const { rank, alpha, rslora, dropout, a, b, magnitude } = adapter
  const config = newConfig({
    base_model_name_or_path: baseModel ?? null,
    lora_alpha: alpha,
    lora_dropout: dropout,
    r: rank,
    target_modules: [module],
    use_dora: true,
    use_rslora: rslora,
  })
  const modules = new Map([[module, { kind: 'linear', rank, alpha, a, b, magnitude } as const]])
  await writePeftAdapter(folder, { config, modules, extra: new Map() })
}
