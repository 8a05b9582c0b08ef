// read.ts: reader of GGUF files: their headers, and which parts a split file has.
import { SparkError } from '../../core/errors.js'
import { KeptFile } from '../kept-file.js'
import { type GgufBytes, GgufFile, GgufTensor } from './file.js'
import { type Header, HeaderParser } from './header.js'

/** Bytes that are read at first. Vocabularies make headers of some MiB. */
const firstBytes = 1 << 16

/** A part of a file, or all of it. */
interface Part {
  readonly label: string
  readonly bytes: GgufBytes
  readonly header: Header
}

/**
 * Reads the header of a file, or of all parts of a split one.
 * @throws SparkError as `readGguf`
 */
export async function readFile(path: string): Promise<GgufFile> {
  const given = await openPart(path)
  const count = splitNumber(given, 'split.count')
  if (count <= 1) return fileOf([given])
  const paths = partPaths(given, count)
  const parts: Part[] = []
  for (const [i, each] of paths.entries()) {
    const part = each === path ? given : await openPart(each)
    expectPart(part, i, count)
    parts.push(part)
  }
  const total = given.header.metadata.has('split.tensors.count')
    ? splitNumber(given, 'split.tensors.count')
    : undefined
  const found = parts.reduce((sum, { header }) => sum + header.tensors.length, 0)
  if (total !== undefined && total !== found)
    throw new SparkError(
      'ERR_FORMAT',
      `${path}: its ${count} parts hold ${found} tensors, but should hold ${total}`,
    )
  return fileOf(parts)
}

/**
 * Reads a file that is in memory.
 * @throws SparkError as `readGguf`
 */
export function readMemory(bytes: Uint8Array, label: string): GgufFile {
  const parsed = new HeaderParser(label, bytes.byteLength).parse(bytes)
  // All bytes are there.
  const part = { label, bytes, header: parsed as Header }
  const count = splitNumber(part, 'split.count')
  if (count > 1)
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `${label} is one of ${count} parts of a file: give the path of a part`,
    )
  return fileOf([part])
}

async function openPart(path: string): Promise<Part> {
  const file = await KeptFile.open(path)
  const parser = new HeaderParser(path, file.byteLength)
  let prefix = await file.load(0, Math.min(firstBytes, file.byteLength))
  for (;;) {
    const parsed = parser.parse(prefix)
    if (typeof parsed === 'object') return { label: path, bytes: file, header: parsed }
    // Twice as many each time, so that what is read again stays less than the header.
    prefix = await longer(file, prefix, Math.min(file.byteLength, Math.max(parsed, 2 * prefix.byteLength)))
  }
}

/** The first `byteLength` bytes of a file, of which `prefix` has some. */
async function longer(file: KeptFile, prefix: Uint8Array, byteLength: number): Promise<Uint8Array> {
  const rest = await file.load(prefix.byteLength, byteLength - prefix.byteLength)
  const bytes = new Uint8Array(byteLength)
  bytes.set(prefix)
  bytes.set(rest, prefix.byteLength)
  return bytes
}

/** A count of the metadata about parts; 0 where there is none. */
function splitNumber({ label, header }: Part, key: string): number {
  const found = header.metadata.get(key)
  if (!found) return 0
  if (typeof found.value === 'number' && Number.isInteger(found.value) && found.value >= 0) return found.value
  throw new SparkError('ERR_FORMAT', `${label}: ${key} must be an integer from 0 on`)
}

/** The paths of all parts, by the name of one. */
function partPaths({ label }: Part, count: number): string[] {
  const [, stem, number, of] = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/s.exec(label) ?? []
  if (stem === undefined || Number(of) !== count || Number(number) < 1 || Number(number) > count) {
    const wanted = `-00001-of-${String(count).padStart(5, '0')}.gguf`
    throw new SparkError(
      'ERR_FORMAT',
      `${label} is one of ${count} parts of a file, whose names must end in ${wanted} and so on`,
    )
  }
  return Array.from({ length: count }, (_, i) => `${stem}-${String(i + 1).padStart(5, '0')}-of-${of}.gguf`)
}

function expectPart(part: Part, index: number, count: number): void {
  const [number, of] = [splitNumber(part, 'split.no'), splitNumber(part, 'split.count')]
  if (number === index && of === count) return
  throw new SparkError(
    'ERR_FORMAT',
    `${part.label} says that it is part ${number + 1} of ${of}, but its name says ${index + 1} of ${count}`,
  )
}

function fileOf(parts: readonly Part[]): GgufFile {
  const tensors = new Map<string, GgufTensor>()
  for (const { label, bytes, header } of parts)
    for (const info of header.tensors) {
      if (tensors.has(info.name))
        throw new SparkError('ERR_FORMAT', `${label}: tensor '${info.name}' is in an earlier part, too`)
      tensors.set(info.name, new GgufTensor(info, bytes))
    }
  const labels = parts.map(({ label }) => label)
  return new GgufFile(labels, parts[0]!.header, tensors)
}
