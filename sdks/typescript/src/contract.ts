/** The contract itself: messages and services of `kakeya.v1`, for programs that serve it. */

export * from "./generated/kakeya/v1/capability_pb.js";
export * from "./generated/kakeya/v1/model_pb.js";
export * from "./generated/kakeya/v1/model_service_pb.js";
export * from "./generated/kakeya/v1/placement_pb.js";
export * from "./generated/kakeya/v1/runtime_pb.js";
export * from "./generated/kakeya/v1/tensor_pb.js";
export { ErrorInfoSchema } from "./generated/status_details_pb.js";
