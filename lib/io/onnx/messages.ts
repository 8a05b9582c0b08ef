// messages.ts: the messages of the ONNX format: name, field number and type of every field that is read or written.
// The numbers are those of onnx.proto in the ONNX specification (IR version 13).

/** Fields of each message. `bytes` is also the type of strings that need not be UTF-8; `[]` marks a repeated field. */
export const messages = {
  Model: {
    irVersion: [1, 'int64'],
    producerName: [2, 'string'],
    producerVersion: [3, 'string'],
    graph: [7, 'Graph'],
    opsetImport: [8, 'OperatorSet[]'],
    metadata: [14, 'Entry[]'],
    functions: [25, 'Function[]'],
  },
  OperatorSet: { domain: [1, 'string'], version: [2, 'int64'] },
  Entry: { key: [1, 'string'], value: [2, 'string'] },
  Graph: {
    node: [1, 'Node[]'],
    name: [2, 'string'],
    initializer: [5, 'Tensor[]'],
    input: [11, 'ValueInfo[]'],
    output: [12, 'ValueInfo[]'],
    valueInfo: [13, 'ValueInfo[]'],
    sparseInitializer: [15, 'SparseTensor[]'],
    metadata: [16, 'Entry[]'],
  },
  Node: {
    input: [1, 'string[]'],
    output: [2, 'string[]'],
    name: [3, 'string'],
    opType: [4, 'string'],
    attribute: [5, 'Attribute[]'],
    domain: [7, 'string'],
    overload: [8, 'string'],
    metadata: [9, 'Entry[]'],
  },
  Attribute: {
    name: [1, 'string'],
    f: [2, 'float'],
    i: [3, 'int64'],
    s: [4, 'bytes'],
    t: [5, 'Tensor'],
    g: [6, 'Graph'],
    floats: [7, 'float[]'],
    ints: [8, 'int64[]'],
    strings: [9, 'bytes[]'],
    tensors: [10, 'Tensor[]'],
    graphs: [11, 'Graph[]'],
    typeProto: [14, 'Type'],
    typeProtos: [15, 'Type[]'],
    type: [20, 'int32'],
    refAttrName: [21, 'string'],
    sparseTensor: [22, 'SparseTensor'],
    sparseTensors: [23, 'SparseTensor[]'],
  },
  Function: {
    name: [1, 'string'],
    input: [4, 'string[]'],
    output: [5, 'string[]'],
    attribute: [6, 'string[]'],
    node: [7, 'Node[]'],
    opsetImport: [9, 'OperatorSet[]'],
    domain: [10, 'string'],
    attributeProto: [11, 'Attribute[]'],
    overload: [13, 'string'],
  },
  ValueInfo: { name: [1, 'string'], type: [2, 'Type'] },
  Type: {
    tensor: [1, 'TensorType'],
    sequence: [4, 'ElementOf'],
    map: [5, 'MapType'],
    sparse: [8, 'TensorType'],
    optional: [9, 'ElementOf'],
  },
  TensorType: { elemType: [1, 'int32'], shape: [2, 'Shape'] },
  ElementOf: { elemType: [1, 'Type'] },
  MapType: { keyType: [1, 'int32'], valueType: [2, 'Type'] },
  Shape: { dim: [1, 'Dimension[]'] },
  Dimension: { value: [1, 'int64'], param: [2, 'string'] },
  Tensor: {
    dims: [1, 'int64[]'],
    dataType: [2, 'int32'],
    segment: [3, 'Segment'],
    floatData: [4, 'float[]'],
    int32Data: [5, 'int32[]'],
    stringData: [6, 'bytes[]'],
    int64Data: [7, 'int64[]'],
    name: [8, 'string'],
    rawData: [9, 'bytes'],
    doubleData: [10, 'double[]'],
    uint64Data: [11, 'uint64[]'],
    externalData: [13, 'Entry[]'],
    dataLocation: [14, 'int32'],
  },
  Segment: { begin: [1, 'int64'], end: [2, 'int64'] },
  SparseTensor: { values: [1, 'Tensor'], indices: [2, 'Tensor'], dims: [3, 'int64[]'] },
} as const

/** Names of the messages. */
export type MessageName = keyof typeof messages

interface Scalars<Bytes> {
  int32: number
  int64: bigint
  uint64: bigint
  float: number
  double: number
  string: string
  bytes: Bytes
}

/** Types of fields that are not messages. */
export type ScalarName = keyof Scalars<unknown>

type Element<T, Bytes> = T extends ScalarName
  ? Scalars<Bytes>[T]
  : T extends MessageName
    ? Message<T, Bytes>
    : never
type Value<T, Bytes> = T extends `${infer E}[]` ? readonly Element<E, Bytes>[] : Element<T, Bytes>

/** The fields of a message that a file has. `Bytes` is what holds a field of type `bytes`. */
export type Message<N extends MessageName, Bytes = Uint8Array> = {
  readonly [F in keyof (typeof messages)[N]]?:
    | ((typeof messages)[N][F] extends readonly [number, infer T] ? Value<T, Bytes> : never)
    | undefined
}

/** A field of a message. */
export interface Field {
  readonly name: string
  readonly number: number
  readonly type: ScalarName | MessageName
  readonly repeated: boolean
}

/** The fields of a message, in the order of the table. */
export function fieldsOf(message: MessageName): Field[] {
  return Object.entries<readonly [number, string]>(messages[message]).map(([name, [number, type]]) => ({
    name,
    number,
    type: type.replace('[]', '') as Field['type'],
    repeated: type.endsWith('[]'),
  }))
}

/** Names of all messages. */
export const messageNames = Object.keys(messages) as readonly MessageName[]
