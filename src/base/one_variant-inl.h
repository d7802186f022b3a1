// base: the file KPD_VARIANT_INCLUDE for the variant at hand, whose name and flags end with it (foreach_variant-inl.h). No
// include guard.
#include KPD_VARIANT_INCLUDE
#undef KPD_VARIANT
#undef KPD_VARIANT_STR
#undef KPD_HAS_VNNI
#undef KPD_HAS_VBMI
#undef KPD_HAS_GFNI
