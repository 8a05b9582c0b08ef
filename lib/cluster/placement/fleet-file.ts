// fleet-file.ts: the content of fleet.json.

/** Operators of a device: all, or lists of dtypes; `*` stands for each operator or dtype. */
export type OperatorSet =
  | 'all'
  | readonly {
      /** Of ONNX, such as `MatMul`. */
      readonly op: string
      /** Such as `bf16`. */
      readonly dtypes: readonly string[]
    }[]

/** What a device is. */
export interface DeviceSpec {
  /** What runs the layers: cuda, cpu, metal. */
  readonly backend: string
  /** Bytes. */
  readonly memory: number
  /** Bytes that are not for models. */
  readonly reserve?: number
  /** Of its memory, bytes/s. */
  readonly bandwidth: number
  /** Operations a second of large products, by dtype. */
  readonly flops: Readonly<Record<string, number>>
  /** What it can run. Default: all. */
  readonly operators?: OperatorSet
  /** Share of the FLOP rate that its temperature allows, above 0 and up to 1. Default: 1. */
  readonly headroom?: number
  /** Seconds of a step, whatever it computes. Default: 0. */
  readonly overhead?: number
}

/** A device of fleet.json. */
export interface DeviceEntry extends Partial<DeviceSpec> {
  /** Unique within its node. Default: device0, device1, … */
  readonly name?: string
  /** A known device, such as `GB10`. */
  readonly preset?: string
  /** So many of the same. Default: 1. */
  readonly count?: number
}

/** What a link carries. */
export interface LinkSpec {
  /** Of a small message one way, seconds. */
  readonly latency: number
  /** Bytes/s. */
  readonly bandwidth: number
  /** Whether it is trusted to carry plaintext, as collectives do. */
  readonly fabric?: boolean
}

/** A machine of fleet.json. */
export interface NodeEntry {
  /** Unique in the fleet. */
  readonly name: string
  /** So many of the same. Default: 1. */
  readonly count?: number
  /** What computes in it. */
  readonly devices: readonly DeviceEntry[]
  /** Between its devices. */
  readonly link?: Partial<LinkSpec>
}

/** The content of fleet.json. */
export interface FleetFile {
  /** The machines. */
  readonly nodes: readonly NodeEntry[]
  /** What was measured or is known between two of them. */
  readonly links?: readonly (LinkSpec & {
    /** Names of two nodes. */
    readonly between: readonly [string, string]
  })[]
  /** Between nodes that no link joins. */
  readonly network?: LinkSpec
}
