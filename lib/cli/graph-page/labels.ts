// labels.ts: short texts for attributes, constants and names.
import { defaultOf } from '../../graph/attribute-defaults.js'
import type { Constant } from '../../graph/constant.js'
import { onnxNumbers } from '../../graph/element-types.js'
import type { Attribute, Node } from '../../graph/graph.js'
import { describeType } from '../../model/feeds.js'

/** Attributes of windows, which have one number per spatial dimension, and the number that says nothing. */
const windows: Readonly<Record<string, readonly [label: string, trivial?: number]>> = {
  kernel_shape: ['kernel'],
  strides: ['stride', 1],
  pads: ['pad', 0],
  dilations: ['dilation', 1],
}

/** Attributes of a node that are not defaults: `kernel 3×3`, `stride 2`, `axis 1`. Subgraphs are left out. */
export function attributesOf(node: Node): string[] {
  const names = Object.keys(node.attributes)
  const inOrder = new Set([...Object.keys(windows).filter(name => names.includes(name)), ...names])
  return [...inOrder].flatMap(name => {
    const attribute = node.attributes[name]!
    if (attribute.type === 'graph' || attribute.type === 'graphs') return []
    const window = Object.hasOwn(windows, name) ? windows[name] : undefined
    if (window && attribute.type === 'ints') return windowOf(window, attribute.value.map(Number))
    const value = dtypeOf(name, attribute) ?? attributeText(attribute)
    return value === String(defaultOf(node, name)) ? [] : [`${name} ${value}`]
  })
}

/** The element type that an attribute names by its ONNX number. */
function dtypeOf(name: string, { type, value }: Attribute): string | undefined {
  if (type !== 'int' || !/^(to|dtype|output_dtype)$/.test(name)) return undefined
  return Object.entries(onnxNumbers).find(([, number]) => number === Number(value))?.[0]
}

function windowOf([label, trivial]: readonly [string, number?], sizes: readonly number[]): string[] {
  const [first] = sizes
  const isUniform = trivial !== undefined && sizes.every(size => size === first)
  if (isUniform && (first === undefined || first === trivial)) return []
  return [`${label} ${isUniform ? first : sizes.join('×')}`]
}

/** Elements of a list that are shown. */
const shownElements = 8

const list = (values: readonly (number | bigint | string)[]): string =>
  `[${values.slice(0, shownElements).join(', ')}${values.length > shownElements ? ', …' : ''}]`

const float = (value: number): string => String(Number(value.toPrecision(5)))

function attributeText(attribute: Attribute): string {
  switch (attribute.type) {
    case 'float':
      return float(attribute.value)
    case 'floats':
      return list(attribute.value.map(float))
    case 'ints':
    case 'strings':
      return list(attribute.value)
    case 'bytes':
      return `${attribute.value.length} bytes`
    case 'tensor':
      return constantText(attribute.value)
    case 'sparse':
      return `sparse [${attribute.value.shape.join(', ')}]`
    case 'type':
      return describeType(attribute.value)
    case 'tensors':
    case 'sparses':
    case 'graphs':
    case 'types':
      return `${attribute.value.length} of them`
    case 'graph':
      return `${attribute.value.nodes.length} nodes`
    default:
      return String(attribute.value)
  }
}

/** A constant by its elements, where they are few, or its type: `0.5`, `[1, -1, 256]`, `f32 [64, 3, 7, 7]`. */
export function constantText(constant: Constant): string {
  const { dtype, shape, count } = constant
  if (count > shownElements || count === 0 || !/^([iu](8|16|32|64)|f32|f64)$/.test(dtype))
    return describeType({ kind: 'tensor', dtype, shape })
  const values = Array.from(constant.data as ArrayLike<number | bigint>, value =>
    typeof value === 'number' ? float(value) : String(value),
  )
  return shape.length === 0 ? values[0]! : list(values)
}

/** Columns of a character in a proportional font, roughly. */
const columns = (character: string): number => (character.codePointAt(0)! >= 0x2e80 ? 2 : 1)

/** Columns of a text. */
export const columnsOf = (text: string): number =>
  [...text].reduce((sum, character) => sum + columns(character), 0)

/** The end of a text that is too long for a line, where names differ, or its start. */
export function shortened(text: string, width: number, keep: 'start' | 'end' = 'start'): string {
  if (columnsOf(text) <= width) return text
  const characters = keep === 'start' ? [...text] : [...text].reverse()
  const kept: string[] = []
  let used = 1
  for (const character of characters) {
    used += columns(character)
    if (used > width) break
    kept.push(character)
  }
  return keep === 'start' ? `${kept.join('')}…` : `…${kept.reverse().join('')}`
}
