// fleet-schema.ts: JSON Schema of fleet.json.

const name = { type: 'string', minLength: 1, maxLength: 200, pattern: '^[^/=,\\s]+$' } as const
const amount = { type: 'number', minimum: 0, maximum: 1e18 } as const
const rate = { type: 'number', exclusiveMinimum: 0, maximum: 1e21 } as const

const device = {
  type: 'object',
  additionalProperties: false,
  description: 'A processor with memory of its own. What a preset says need not be given.',
  properties: {
    name: { ...name, description: 'unique within its node; default: device0, device1, …' },
    preset: { type: 'string', description: 'a known device, such as GB10 or RTX 4090' },
    count: { type: 'integer', minimum: 1, maximum: 10_000, description: 'so many of the same; default: 1' },
    backend: { type: 'string', minLength: 1, description: 'what runs the layers: cuda, cpu, metal, …' },
    memory: { ...rate, description: 'bytes' },
    reserve: { ...amount, description: 'bytes that are not for models; default: 0' },
    bandwidth: { ...rate, description: 'of its memory, measured, bytes/s' },
    flops: {
      type: 'object',
      minProperties: 1,
      additionalProperties: rate,
      description: 'operations a second of large products by dtype: f32, f16, bf16, f8_e4m3, f4_e2m1, i8',
    },
    operators: {
      description: "what it can run: 'all', or a list; op and dtypes may be '*'",
      anyOf: [
        { const: 'all' },
        {
          type: 'array',
          items: {
            type: 'object',
            additionalProperties: false,
            required: ['op', 'dtypes'],
            properties: { op: { type: 'string' }, dtypes: { type: 'array', items: { type: 'string' } } },
          },
        },
      ],
    },
    headroom: {
      type: 'number',
      exclusiveMinimum: 0,
      maximum: 1,
      description: 'share of the FLOP rate that its temperature allows; default: 1',
    },
    overhead: { ...amount, description: 'of a step, whatever it computes, seconds; default: 0' },
  },
} as const

const linkFields = {
  latency: { ...amount, description: 'of a small message one way, seconds' },
  bandwidth: { ...rate, description: 'bytes/s' },
  fabric: { type: 'boolean', description: 'whether it is trusted to carry plaintext; default: false' },
} as const

/** JSON Schema (draft 2020-12) of a fleet. */
export const fleetSchema = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  title: 'Fleet: machines, their devices, and the links between them',
  type: 'object',
  additionalProperties: false,
  required: ['nodes'],
  properties: {
    nodes: {
      type: 'array',
      minItems: 1,
      maxItems: 10_000,
      items: {
        type: 'object',
        additionalProperties: false,
        required: ['name', 'devices'],
        properties: {
          name,
          count: {
            type: 'integer',
            minimum: 1,
            maximum: 10_000,
            description: 'so many of the same, named name-1, name-2, …; default: 1, named name',
          },
          devices: { type: 'array', minItems: 1, maxItems: 10_000, items: device },
          link: {
            type: 'object',
            description: 'between its devices; default: 10 µs, 25 GB/s',
            additionalProperties: false,
            properties: { latency: linkFields.latency, bandwidth: linkFields.bandwidth },
          },
        },
      },
    },
    links: {
      type: 'array',
      maxItems: 100_000,
      items: {
        type: 'object',
        additionalProperties: false,
        required: ['between', 'latency', 'bandwidth'],
        properties: {
          between: { type: 'array', minItems: 2, maxItems: 2, items: { type: 'string' } },
          ...linkFields,
        },
      },
    },
    network: {
      type: 'object',
      description: 'between nodes that no link joins; without it they cannot reach each other',
      additionalProperties: false,
      required: ['latency', 'bandwidth'],
      properties: linkFields,
    },
  },
} as const
