// outputs.ts: outputs of `dgx-spark run`: first values, JSON, files, comparison.
import { stat } from 'node:fs/promises'
import path from 'node:path'
import { type ElementType, isFloat } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { compareOutputs, type OutputDifference } from '../diagnostics/compare.js'
import { makeFolder, writeFileAtomic } from '../io/atomic-write.js'
import { serializeNpy } from '../io/npy.js'
import { type SafetensorsTensor, writeSafetensors } from '../io/safetensors.js'
import { safetensorsDTypes } from '../io/safetensors-header.js'
import { floatReader, integerReader, isInteger } from '../kernels/js/elements.js'
import type { KernelType } from '../kernels/precision-args.js'
import { Tensor } from '../memory/tensor.js'
import type { ModelOutput } from '../model/results.js'
import { UsageError } from './command.js'
import { readTensors, type Tensors } from './feeds.js'

/** Outputs by name. */
export type Outputs = Readonly<Record<string, ModelOutput>>

/** Values that are shown of an output. */
const shownValues = 6

/** Values that one JSON document may hold: a string in JavaScript has at most 2^29 characters. */
const maxJsonValues = 10_000_000

/** One row of a table: name, type, first values. */
export function describeOutput(name: string, output: ModelOutput): [string, string, string][] {
  if (output === null) return [[name, 'nothing', '']]
  if (Array.isArray(output)) {
    const items = output.flatMap((item, i) => describeOutput(`${name}[${i}]`, item))
    return [[name, `sequence of ${output.length}`, ''], ...items]
  }
  const { dtype, shape, size } = output as Tensor<ElementType>
  const values = elements(output as Tensor<ElementType>, shownValues).map(value =>
    typeof value === 'number' ? String(Number(value.toPrecision(5))) : String(value),
  )
  if (size > shownValues) values.push('…')
  return [[name, `${dtype} [${shape.join(', ')}]`, values.join(' ')]]
}

/** The first elements of a tensor: numbers, bigints, booleans, texts; complex numbers as pairs. */
function elements({ dtype, data }: Tensor<ElementType>, count = data.length): unknown[] {
  const length = Math.min(count, data.length)
  if (dtype === 'string') return (data as readonly string[]).slice(0, length)
  if (dtype === 'c64' || dtype === 'c128') return Array.from((data as Float64Array).subarray(0, length))
  const array = data as Float64Array
  if (dtype === 'bool') return Array.from({ length }, (_, i) => array[i] !== 0)
  const read: (i: number) => number | bigint = isInteger(dtype as KernelType)
    ? integerReader(dtype as KernelType, array)
    : floatReader(dtype as KernelType, array)
  return Array.from({ length }, (_, i) => read(i))
}

/**
 * An output for JSON, with all its values; integers beyond 2^53 are strings of digits.
 * @throws SparkError ERR_UNSUPPORTED for more values than a document can hold
 */
export function jsonOutput(name: string, output: ModelOutput): object {
  if (output === null) return { name, kind: 'nothing' }
  if (Array.isArray(output)) {
    return { name, kind: 'sequence', items: output.map((item, i) => jsonOutput(`${name}[${i}]`, item)) }
  }
  const tensor = output as Tensor<ElementType>
  if (tensor.size > maxJsonValues) {
    const count = `output '${name}' has ${tensor.size} values, more than the ${maxJsonValues} of a JSON document`
    throw new SparkError('ERR_UNSUPPORTED', `${count}: write it to a file with --output`)
  }
  const exact = (value: unknown): unknown => {
    if (typeof value !== 'bigint') return value
    return Number.isSafeInteger(Number(value)) ? Number(value) : String(value)
  }
  const { dtype, shape } = tensor
  return { name, dtype, shape, values: elements(tensor).map(exact) }
}

/** The tensors of all outputs by name; those of a sequence as `name[i]`. */
function tensorsOf(outputs: Outputs): Tensors {
  return Object.fromEntries(
    Object.entries(outputs).flatMap(([name, output]): [string, Tensor<ElementType>][] => {
      if (output === null) return []
      if (!Array.isArray(output)) return [[name, output as Tensor<ElementType>]]
      return output.map((item, i) => [`${name}[${i}]`, item])
    }),
  )
}

/** Throws for a target of `--output` that cannot hold the outputs of a model. */
export function expectTarget(target: string, model: string, outputs: number): void {
  if (path.resolve(target) === path.resolve(model))
    throw new UsageError(`--output ${target} is the model itself`)
  if (target.endsWith('.npy') && outputs !== 1) {
    const ways = 'give a name that ends in .safetensors, or a folder'
    throw new UsageError(`--output ${target}: one .npy file cannot hold ${outputs} outputs; ${ways}`)
  }
}

/**
 * Writes outputs to a .npy file, a .safetensors file, or .npy files in a folder.
 * @returns the files
 * @throws SparkError ERR_DTYPE for elements that the format lacks, ERR_IO
 */
export async function saveOutputs(outputs: Outputs, target: string): Promise<string[]> {
  const tensors = tensorsOf(outputs)
  if (target.endsWith('.safetensors')) {
    const records = Object.entries(tensors).map(([name, tensor]) => [name, recordOf(name, tensor)] as const)
    await writeSafetensors(target, records)
    return [target]
  }
  const names = Object.keys(tensors)
  const files = target.endsWith('.npy')
    ? [target]
    : names.map(name => path.join(target, `${fileName(name)}.npy`))
  const bytes = names.map(name => serializeNpy(widened(tensors[name]!), `output '${name}'`))
  if (!target.endsWith('.npy')) await makeFolder(target)
  for (const [i, chunks] of bytes.entries()) await writeFileAtomic(path.resolve(files[i]!), chunks)
  return files
}

/** A tensor of f32 for one of floats that NumPy lacks: bf16, FP8, 4 bits. */
function widened(tensor: Tensor<ElementType>): Tensor<ElementType> {
  const { dtype, shape } = tensor
  if (!isFloat(dtype) || ['f16', 'f32', 'f64'].includes(dtype)) return tensor
  return Tensor.of(Float32Array.from(elements(tensor) as number[]), shape, 'f32')
}

/** A name of a value as a name of a file, different for different names. */
const fileName = (name: string): string =>
  encodeURIComponent(name).replace(/^\.+/, dots => dots.replaceAll('.', '%2E')) || '%00'

function recordOf(name: string, { dtype, shape, data }: Tensor<ElementType>): SafetensorsTensor {
  const stored = dtype.toUpperCase() as keyof typeof safetensorsDTypes
  if (!Object.hasOwn(safetensorsDTypes, stored) || dtype === 'f4') {
    throw new SparkError('ERR_DTYPE', `output '${name}': safetensors files cannot hold ${dtype}; use --json`)
  }
  return { dtype: stored, shape, data: data as Float32Array }
}

/** Tensors of a reference: a .npy or .safetensors file, or a folder of .npy files as {@link saveOutputs} writes it. */
async function readReference(source: string, names: readonly string[]): Promise<Tensors> {
  if ((await stat(source).catch(() => undefined))?.isDirectory()) {
    const tensors: Tensors = {}
    for (const name of names) {
      const file = path.join(source, `${fileName(name)}.npy`)
      Object.assign(tensors, await readTensors(file, name))
    }
    return tensors
  }
  return readTensors(source, names[0] ?? '')
}

/** Compares outputs with those of files. */
export async function compareWithFile(outputs: Outputs, source: string): Promise<OutputDifference[]> {
  const ours = tensorsOf(outputs)
  return compareOutputs(ours, await readReference(source, Object.keys(ours)))
}

/** Compares outputs with others. */
export const compareWithOutputs = (outputs: Outputs, others: Outputs): OutputDifference[] =>
  compareOutputs(tensorsOf(outputs), tensorsOf(others))
