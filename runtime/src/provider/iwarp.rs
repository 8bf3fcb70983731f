//! The software RNIC on TCP: MPA, DDP and RDMAP.
