// objects.ts: Cap'n Proto structs and lists behind pointers of a message, with bounds checked; the check of whole messages.
import { type Message, Pointer, PointerType, utils } from 'capnp-es'
import type { ListView, Segment, StructView } from './views.js'

/** Structs that are inside each other at most. */
const maxDepth = 64
const composite = 7
/** Bits of an element by its code. */
const elementBits = [0, 1, 8, 16, 32, 64, 64]

/** The pointer at a byte. Segments are always those of the package. */
function pointerAt(segment: Segment, byte: number): Pointer {
  return new Pointer(segment as Pointer['segment'], byte)
}

/** The pointer with an index in a struct; null when it is null or the struct has none there. */
export function pointerOf({ segment, pointers, pointerCount }: StructView, index: number): Pointer | null {
  if (index >= pointerCount) return null
  const pointer = pointerAt(segment, pointers + 8 * index)
  return utils.isNull(pointer) ? null : pointer
}

/** The struct behind a pointer. @throws Error when it is not there */
export function structAt(pointer: Pointer): StructView {
  if (utils.getTargetPointerType(pointer) !== PointerType.STRUCT)
    throw new Error('a pointer leads to no struct where one belongs')
  const { dataByteLength: dataBytes, pointerLength: pointerCount } = utils.getTargetStructSize(pointer)
  const { segment, byteOffset: data } = utils.getContent(pointer)
  expectInside(segment, data, dataBytes + 8 * pointerCount)
  return { segment, data, dataBytes, pointers: data + dataBytes, pointerCount }
}

/** The list behind a pointer. @throws Error when it is not there */
export function listAt(pointer: Pointer): ListView {
  if (utils.getTargetPointerType(pointer) !== PointerType.LIST)
    throw new Error('a pointer leads to no list where one belongs')
  const target = utils.followFars(pointer)
  const size = utils.getListElementSize(target)
  const length = utils.getListLength(target)
  const { segment, byteOffset: data } = utils.getContent(pointer)
  if (size !== composite) {
    expectInside(segment, data, Math.ceil((length * elementBits[size]!) / 8))
    return { segment, data, count: length, size, dataBytes: 0, pointerCount: 0 }
  }
  expectInside(segment, data - 8, 8 + 8 * length)
  const tag = pointerAt(segment, data - 8)
  const count = utils.getOffsetWords(tag)
  const { dataByteLength: dataBytes, pointerLength: pointerCount } = utils.getStructSize(tag)
  if (utils.getPointerType(tag) !== PointerType.STRUCT || count < 0)
    throw new Error('a list has an invalid tag')
  if (count * (dataBytes + 8 * pointerCount) > 8 * length)
    throw new Error(`a list of ${count} elements does not fit into ${length} words`)
  return { segment, data, count, size, dataBytes, pointerCount }
}

/** An element of a list of structs. */
export function elementOf({ segment, data, dataBytes, pointerCount }: ListView, index: number): StructView {
  const start = data + index * (dataBytes + 8 * pointerCount)
  return { segment, data: start, dataBytes, pointers: start + dataBytes, pointerCount }
}

/**
 * The root of a message all of whose pointers lead to structs and lists inside it. Nothing may be nested more than 64 deep, and
 * all of it together may not have more words than the message: no two pointers lead to the same place.
 * @throws Error that says what is wrong
 */
export function checkedRoot(message: Message, words: number): StructView {
  const pointer = new Pointer(message.getSegment(0), 0)
  if (utils.isNull(pointer)) throw new Error('the message is empty')
  const root = structAt(pointer)
  new Check(words).struct(root, 1)
  return root
}

class Check {
  #words: number

  constructor(words: number) {
    this.#words = words
  }

  struct(view: StructView, depth: number): void {
    if (depth > maxDepth) throw new Error(`structs are nested more than ${maxDepth} deep`)
    this.#spend(view.dataBytes / 8 + view.pointerCount)
    this.#inner(view, depth)
  }

  #inner(view: StructView, depth: number): void {
    for (let i = 0; i < view.pointerCount; i++) {
      const pointer = pointerOf(view, i)
      if (pointer) this.#any(pointer, depth + 1)
    }
  }

  #any(pointer: Pointer, depth: number): void {
    const type = utils.getTargetPointerType(pointer)
    if (type === PointerType.STRUCT) this.struct(structAt(pointer), depth)
    else if (type === PointerType.LIST) this.#list(listAt(pointer), depth)
    else throw new Error('a pointer leads to no struct or list')
  }

  #list(list: ListView, depth: number): void {
    if (depth > maxDepth) throw new Error(`lists are nested more than ${maxDepth} deep`)
    const { segment, data, count, size, dataBytes, pointerCount } = list
    if (size === composite) {
      this.#spend(Math.max(1, dataBytes / 8 + pointerCount) * count)
      if (pointerCount > 0) for (let i = 0; i < count; i++) this.#inner(elementOf(list, i), depth)
    } else {
      this.#spend(Math.ceil((count * Math.max(1, elementBits[size]!)) / 64))
      const isOfPointers = size === 6
      if (isOfPointers)
        this.#inner({ segment, data, dataBytes: 0, pointers: data, pointerCount: count }, depth)
    }
  }

  #spend(words: number): void {
    this.#words -= words
    if (this.#words < 0) throw new Error('its pointers lead to more than the message holds')
  }
}

function expectInside(segment: Segment, start: number, bytes: number): void {
  if (start < 0 || start + bytes > segment.byteLength)
    throw new Error(`a pointer leads to bytes ${start} to ${start + bytes} of ${segment.byteLength}`)
}
