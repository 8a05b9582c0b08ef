// pickle.ts: reads Python pickles of protocol 4 that hold dictionaries of texts, tuples of integers, and slices. Nothing in them
// is ever called: the only name that may occur is builtins.slice, and every other instruction is refused.
import { SparkError } from '../core/errors.js'

/** A Python slice without a step. */
export class PickledSlice {
  readonly start: number | null
  readonly stop: number | null

  constructor(start: number | null, stop: number | null) {
    this.start = start
    this.stop = stop
  }
}

/** A value of a dictionary. */
export type PickledValue = string | number | null | PickledTuple | PickledSlice | PickledDict
/** A tuple of integers and None. */
export type PickledTuple = readonly (number | null)[]
/** A dictionary. */
export type PickledDict = ReadonlyMap<string, PickledValue>

/** What only the machine's stack holds: where a collection begins, and the name builtins.slice. */
const mark: unique symbol = Symbol('MARK')
const sliceName: unique symbol = Symbol('builtins.slice')
type Item = PickledValue | typeof mark | typeof sliceName

const maxBytes = 65536
const maxItems = 4096
const maxDepth = 8

/** The instructions that are understood, by their code: pickletools of Python lists them all. */
const names: Readonly<Record<number, string>> = {
  40: 'MARK',
  46: 'STOP',
  74: 'BININT',
  75: 'BININT1',
  77: 'BININT2',
  78: 'NONE',
  82: 'REDUCE',
  104: 'BINGET',
  115: 'SETITEM',
  116: 'TUPLE',
  117: 'SETITEMS',
  125: 'EMPTY_DICT',
  128: 'PROTO',
  133: 'TUPLE1',
  134: 'TUPLE2',
  135: 'TUPLE3',
  140: 'SHORT_BINUNICODE',
  147: 'STACK_GLOBAL',
  148: 'MEMOIZE',
  149: 'FRAME',
}

/** Names of what is refused where somebody has to know why. */
const refusedNames: Readonly<Record<number, string>> = {
  99: 'GLOBAL',
  105: 'INST',
  111: 'OBJ',
  80: 'PERSID',
  81: 'BINPERSID',
  98: 'BUILD',
  129: 'NEWOBJ',
  130: 'EXT1',
  131: 'EXT2',
  132: 'EXT4',
  146: 'NEWOBJ_EX',
  151: 'NEXT_BUFFER',
}

/**
 * The dictionary that a pickle holds.
 * @param label - names the pickle in errors
 * @throws SparkError ERR_FORMAT naming the place for a pickle that is broken, too large, or holds anything else
 */
export function readPickle(bytes: Uint8Array, label: string): PickledDict {
  if (bytes.length > maxBytes) {
    const size = `${bytes.length} bytes, more than ${maxBytes}`
    throw new SparkError('ERR_FORMAT', `${label} has ${size}: it is no metadata of a model`)
  }
  return new Machine(bytes, label).run()
}

/** The stack machine that a pickle is a program of. */
class Machine {
  readonly #bytes: Uint8Array
  readonly #view: DataView
  readonly #label: string
  readonly #stack: Item[] = []
  readonly #memo: Item[] = []
  #depth = 0
  /** Start of the instruction, and of what is read next. */
  #start = 0
  #next = 0

  constructor(bytes: Uint8Array, label: string) {
    this.#bytes = bytes
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    this.#label = label
  }

  run(): PickledDict {
    if (this.#byte() !== 0x80 || this.#byte() !== 4) this.#fail('it does not begin with PROTO 4')
    for (;;) {
      this.#start = this.#next
      const code = this.#byte()
      if (code === 0x2e) return this.#stop()
      this.#execute(code)
      if (this.#stack.length > maxItems || this.#memo.length > maxItems)
        this.#fail(`it holds more than ${maxItems} values`)
    }
  }

  #stop(): PickledDict {
    if (this.#next !== this.#bytes.length) this.#fail('something follows the STOP')
    const [value] = this.#stack
    if (this.#stack.length !== 1 || !(value instanceof Map)) this.#fail('it does not end with a dictionary')
    return value
  }

  #execute(code: number): void {
    const stack = this.#stack
    switch (names[code]) {
      case 'FRAME':
        this.#frame()
        break
      case 'MARK':
        if (++this.#depth > maxDepth) this.#fail(`MARK is nested more than ${maxDepth} deep`)
        stack.push(mark)
        break
      case 'EMPTY_DICT':
        stack.push(new Map())
        break
      case 'NONE':
        stack.push(null)
        break
      case 'BININT1':
        stack.push(this.#byte())
        break
      case 'BININT2':
        stack.push(this.#view.getUint16(this.#take(2), true))
        break
      case 'BININT':
        stack.push(this.#view.getInt32(this.#take(4), true))
        break
      case 'SHORT_BINUNICODE':
        stack.push(this.#text())
        break
      case 'STACK_GLOBAL':
        this.#global()
        break
      case 'REDUCE':
        this.#reduce()
        break
      case 'TUPLE':
        this.#tuple(this.#popToMark())
        break
      case 'TUPLE1':
      case 'TUPLE2':
      case 'TUPLE3':
        this.#tuple(Array.from({ length: code - 0x84 }, () => this.#pop()).reverse())
        break
      case 'MEMOIZE':
        this.#memo.push(this.#top())
        break
      case 'BINGET':
        this.#get(this.#byte())
        break
      case 'SETITEM':
        this.#set(this.#popPair())
        break
      case 'SETITEMS':
        this.#set(this.#popToMark())
        break
      default:
        this.#refuse(code)
    }
  }

  #refuse(code: number): never {
    const name = names[code] ?? refusedNames[code]
    const hex = `0x${code.toString(16).padStart(2, '0')}`
    this.#fail(
      `the instruction ${name ? `${name} (${hex})` : hex} does not belong in the metadata of a model`,
    )
  }

  #frame(): void {
    const length = this.#view.getBigUint64(this.#take(8), true)
    const rest = this.#bytes.length - this.#next
    if (length !== BigInt(rest)) this.#fail(`FRAME announces ${length} bytes, but ${rest} follow`)
  }

  #text(): string {
    const length = this.#byte()
    const start = this.#take(length)
    try {
      return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(
        this.#bytes.subarray(start, start + length),
      )
    } catch {
      return this.#fail('a text is not UTF-8')
    }
  }

  #global(): void {
    const name = this.#pop()
    const module = this.#pop()
    if (module !== 'builtins' || name !== 'slice') {
      const shown = [module, name].map(part => (typeof part === 'string' ? part : '?')).join('.')
      this.#fail(`STACK_GLOBAL names ${shown}; only builtins.slice is allowed`)
    }
    this.#stack.push(sliceName)
  }

  #reduce(): void {
    const args = this.#pop()
    const callee = this.#pop()
    if (callee !== sliceName) this.#fail('REDUCE calls something else than builtins.slice')
    if (!Array.isArray(args) || args.length !== 3 || args[2] !== null)
      this.#fail('a slice must have a start, a stop and no step')
    this.#stack.push(new PickledSlice(args[0], args[1]))
  }

  #tuple(items: Item[]): void {
    const isPlain = items.every(item => item === null || typeof item === 'number')
    if (!isPlain) this.#fail('a tuple must hold integers and None only')
    this.#stack.push(Object.freeze(items) as PickledTuple)
  }

  #get(index: number): void {
    const item = this.#memo[index]
    if (item === undefined) this.#fail(`BINGET wants entry ${index} of ${this.#memo.length}`)
    // A dictionary could otherwise be put into itself.
    if (item instanceof Map) this.#fail('BINGET wants a dictionary a second time')
    this.#stack.push(item)
  }

  #set(items: Item[]): void {
    const dict = this.#top()
    if (!(dict instanceof Map)) this.#fail('what gets items is no dictionary')
    if (items.length % 2 !== 0) this.#fail('a key has no value')
    for (let i = 0; i < items.length; i += 2) {
      const [key, value] = [items[i], items[i + 1]!]
      if (typeof key !== 'string') this.#fail('a key is no text')
      if (dict.has(key)) this.#fail(`the key '${key}' occurs twice`)
      if (value === mark || value === sliceName) this.#fail(`the key '${key}' has no value`)
      dict.set(key, value)
    }
  }

  #popToMark(): Item[] {
    const at = this.#stack.lastIndexOf(mark)
    if (at < 0) this.#fail('a collection has no MARK')
    this.#depth--
    const items = this.#stack.splice(at)
    return items.slice(1)
  }

  #popPair(): Item[] {
    const value = this.#pop()
    return [this.#pop(), value]
  }

  #pop(): Item {
    const item = this.#top()
    this.#stack.pop()
    return item
  }

  #top(): Exclude<Item, typeof mark> {
    const item = this.#stack.at(-1)
    if (item === undefined || item === mark) this.#fail('a value is missing')
    return item
  }

  #byte(): number {
    return this.#bytes[this.#take(1)]!
  }

  /** Where the next `count` bytes begin. */
  #take(count: number): number {
    const start = this.#next
    this.#next += count
    if (this.#next > this.#bytes.length) this.#fail('it is cut off')
    return start
  }

  #fail(what: string): never {
    throw new SparkError('ERR_FORMAT', `${this.#label}: byte ${this.#start}: ${what}`)
  }
}
