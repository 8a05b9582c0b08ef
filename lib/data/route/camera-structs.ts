// camera-structs.ts: frames, their numbers in videos, what the models make of them.
import { at, bool, data, each, f32, f32s, i32, oneOf, struct, u32, u64 } from './fields.js'

/** Where the frame of a camera is in a video. */
export const encodeIndex = struct({
  /** Number of the frame since the start of the camera. */
  frameId: u32(0),
  /** Codec and quality, such as fullHEVC or qcameraH264. */
  type: oneOf(
    32,
    'bigBoxLossless',
    'fullHEVC',
    'bigBoxHEVC',
    'chffrAndroidH264',
    'fullLosslessClip',
    'front',
    'qcameraH264',
    'livestreamH264',
  ),
  /** Number of the frame since the start of the encoder. */
  encodeId: u32(64),
  /** Number of the segment in its route. */
  segmentNum: i32(96),
  /** Number of the frame in the video of the segment. */
  segmentId: u32(128),
  /** As segmentId, counted by the encoder. */
  segmentIdEncode: u32(160),
  /** Start of the exposure, in nanoseconds since boot. */
  timestampSof: u64(192),
  /** End of the exposure, in nanoseconds since boot. */
  timestampEof: u64(256),
  flags: u32(320),
  /** Bytes of the encoded frame. */
  len: u32(352),
})

/** A frame as the camera delivered it. */
export const frameData = struct({
  frameId: u32(0),
  encodeId: u32(32),
  /** End of the exposure, in nanoseconds since boot. */
  timestampEof: u64(64),
  /** Start of the exposure, in nanoseconds since boot. */
  timestampSof: u64(256),
  /** Lines of the sensor that the exposure takes. */
  integLines: i32(160),
  gain: f32(448),
  highConversionGain: bool(240),
  measuredGreyFraction: f32(512),
  targetGreyFraction: f32(544),
  /** Seconds. */
  processingTime: f32(576),
  frameIdSensor: u32(608),
  sensor: oneOf(640, 'unknown', 'ar0231', 'ox03c10', 'os04c10'),
  exposureValPercent: f32(672),
  requestId: u32(704),
  /** Row-major 3x3 matrix. */
  transform: f32s(2),
  temperaturesC: f32s(6),
})

/** A picture of the road, at 1/60 Hz or so. */
export const thumbnail = struct({
  frameId: u32(0),
  /** Nanoseconds since boot. */
  timestampEof: u64(64),
  encoding: oneOf(32, 'unknown', 'jpeg', 'keyframe'),
  thumbnail: data(0),
})

/** Motion of the camera between two frames, as the model sees it. */
export const cameraOdometry = struct({
  frameId: u32(0),
  /** Nanoseconds since boot. */
  timestampEof: u64(64),
  /** m/s, device frame (forward, right, down). */
  trans: f32s(0),
  /** rad/s, device frame. */
  rot: f32s(1),
  transStd: f32s(2),
  rotStd: f32s(3),
  /** rad: roll, pitch, yaw of the wide camera. */
  wideFromDeviceEuler: f32s(4),
  wideFromDeviceEulerStd: f32s(5),
  roadTransformTrans: f32s(6),
  roadTransformTransStd: f32s(7),
})

/** A trajectory or line: 33 points, m, m/s, m/s^2 or rad by what it is; t in seconds. */
const xyzt = struct({
  x: f32s(0),
  y: f32s(1),
  z: f32s(2),
  t: f32s(3),
  xStd: f32s(4),
  yStd: f32s(5),
  zStd: f32s(6),
})

const lead = struct({
  prob: f32(0),
  /** Seconds ahead that prob is for. */
  probTime: f32(32),
  /** s. */
  t: f32s(0),
  /** m, forward. */
  x: f32s(1),
  xStd: f32s(2),
  /** m, right. */
  y: f32s(3),
  yStd: f32s(4),
  /** m/s. */
  v: f32s(5),
  vStd: f32s(6),
  /** m/s^2. */
  a: f32s(7),
  aStd: f32s(8),
})

const disengagePredictions = struct({
  /** s. */
  t: f32s(0),
  brakeDisengageProbs: f32s(1),
  gasDisengageProbs: f32s(2),
  steerOverrideProbs: f32s(3),
  brake3MetersPerSecondSquaredProbs: f32s(4),
  brake4MetersPerSecondSquaredProbs: f32s(5),
  brake5MetersPerSecondSquaredProbs: f32s(6),
  gasPressProbs: f32s(7),
  brakePressProbs: f32s(8),
})

/** Names of the states of a lane change. */
export const laneChangeStates = ['off', 'preLaneChange', 'laneChangeStarting', 'laneChangeFinishing']
/** Names of the directions of a lane change. */
export const laneChangeDirections = ['none', 'left', 'right']

const action = struct({
  /** 1/m. */
  desiredCurvature: f32(0),
  /** m/s^2. */
  desiredAcceleration: f32(32),
  shouldStop: bool(64),
})

/** What the driving model made of a frame, in the device frame (forward, right, down). */
export const modelV2 = struct({
  frameId: u32(0),
  frameIdExtra: u32(224),
  frameAge: u32(32),
  frameDropPerc: f32(64),
  /** Nanoseconds since boot. */
  timestampEof: u64(128),
  /** Seconds. */
  modelExecutionTime: f32(96),
  /** m. */
  position: at(0, xyzt),
  /** rad. */
  orientation: at(1, xyzt),
  /** m/s. */
  velocity: at(2, xyzt),
  /** rad/s. */
  orientationRate: at(3, xyzt),
  /** m/s^2. */
  acceleration: at(13, xyzt),
  /** Far left, left, right, far right; m. */
  laneLines: each(4, xyzt),
  laneLineProbs: f32s(5),
  laneLineStds: f32s(9),
  /** Left, right; m. */
  roadEdges: each(6, xyzt),
  roadEdgeStds: f32s(10),
  leadsV3: each(12, lead),
  meta: at(
    8,
    struct({
      engagedProb: f32(0),
      desirePrediction: f32s(0),
      desireState: f32s(1),
      disengagePredictions: at(2, disengagePredictions),
      hardBrakePredicted: bool(128),
      laneChangeState: oneOf(144, ...laneChangeStates),
      laneChangeDirection: oneOf(160, ...laneChangeDirections),
    }),
  ),
  confidence: oneOf(272, 'red', 'yellow', 'green'),
  action: at(16, action),
  /** Outputs of the model as they are, in f32; where it was told to log them. */
  rawPredictions: data(11),
})

/** The part of modelV2 that small logs have of every frame. */
export const drivingModelData = struct({
  frameId: u32(0),
  frameIdExtra: u32(32),
  frameDropPerc: f32(64),
  /** Seconds. */
  modelExecutionTime: f32(96),
  action: at(0, action),
  /** m, and probabilities. */
  laneLineMeta: at(1, struct({ leftY: f32(0), rightY: f32(32), leftProb: f32(64), rightProb: f32(96) })),
  meta: at(
    2,
    struct({
      laneChangeState: oneOf(0, ...laneChangeStates),
      laneChangeDirection: oneOf(16, ...laneChangeDirections),
    }),
  ),
  /** Coefficients of polynomials of the time in seconds. */
  path: at(3, struct({ xCoefficients: f32s(0), yCoefficients: f32s(1), zCoefficients: f32s(2) })),
})

const driverData = struct({
  /** rad: pitch, yaw, roll. */
  faceOrientation: f32s(0),
  faceOrientationStd: f32s(1),
  facePosition: f32s(2),
  facePositionStd: f32s(3),
  faceProb: f32(0),
  leftEyeProb: f32(32),
  rightEyeProb: f32(64),
  leftBlinkProb: f32(96),
  rightBlinkProb: f32(128),
  sunglassesProb: f32(160),
  phoneProb: f32(224),
  sleepProb: f32(256),
})

/** What the driver monitoring model made of a frame. */
export const driverStateV2 = struct({
  frameId: u32(0),
  /** Seconds. */
  modelExecutionTime: f32(32),
  wheelOnRightProb: f32(128),
  leftDriverData: at(1, driverData),
  rightDriverData: at(2, driverData),
  rawPredictions: data(0),
})
