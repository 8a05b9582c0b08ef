// gguf-names.ts: GGUF models of a repository by the names of their files.

/** A GGUF model: one file, or the parts of one that is split. */
export interface GgufModel<F> {
  /** Its path without `-00001-of-0000N.gguf`. */
  readonly stem: string
  /** Q4_K_M, UD-Q4_K_XL, BF16, ...; '' where the name has none. */
  readonly quantization: string
  /** First to last. */
  readonly files: readonly F[]
  /** Parts that it should have. */
  readonly count: number
}

/** The name of a part of a model that is split: stem, number, count. */
export const splitName = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/i

/** The GGUF models of files, in the order of their names. */
export function ggufModels<F extends { readonly name: string }>(files: readonly F[]): GgufModel<F>[] {
  const models = new Map<string, { files: F[]; count: number }>()
  const sorted = files
    .filter(({ name }) => /\.gguf$/i.test(name))
    .toSorted((a, b) => (a.name < b.name ? -1 : 1))
  for (const file of sorted) {
    const [, stem, , count] = splitName.exec(file.name) ?? []
    const name = stem ?? file.name.replace(/\.gguf$/i, '')
    const model = models.get(name) ?? { files: [], count: Number(count ?? 1) }
    models.set(name, model)
    model.files.push(file)
  }
  return [...models].map(([stem, model]) => ({ stem, quantization: quantizationOf(stem), ...model }))
}

/** Whether files are no language model, but belong to one: projectors of images, statistics of quantizers. */
export const isSideFile = (stem: string): boolean => /(^|[-_./])(mmproj|imatrix)([-_.]|$)/i.test(stem)

const labels =
  /(?<=^|[-._/])(?:UD-)?(?:I?Q[1-9](?:_[0-9A-Z]+)*|TQ[12]_0|MXFP4(?:_MOE)?|NVFP4|BF16|FP?16|FP?32)(?=[-._/]|$)/gi

/** The quantization that the name of a file has; '' where it has none. */
export function quantizationOf(stem: string): string {
  const last = [...stem.matchAll(labels)].at(-1)?.[0] ?? ''
  return last.toUpperCase().replace(/^FP(?=16|32)/, 'F')
}

/** Quantizations that are pulled where nobody names one: the first that is there. */
export const usualQuantizations = [
  'Q4_K_M',
  'UD-Q4_K_XL',
  'Q4_K_S',
  'Q4_0',
  'MXFP4',
  'MXFP4_MOE',
  'IQ4_NL',
  'Q5_K_M',
  'Q6_K',
  'Q8_0',
]
